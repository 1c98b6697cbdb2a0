"""Reading and writing workloads of leases."""

import gzip

import pytest

from secondary_scheduler.leases.scheduling.kinds import LeaseKind
from secondary_scheduler.reading.values import InputError
from secondary_scheduler.simulation.workloads import lwf, swf

NEED = (100, 1024)
#: Fields: job, submit, wait, run, used, cpu, memory, asked, requested,
#: memory, status, user ...
JOBS = '''; a header
;  more of it

14 32 20 44 32 0.03 -1 4 64800 -1 1 96 -1 -1 3 -1 -1 -1
15 287 14 -1 32 0.03 -1 4 64800 -1 5 96 -1 -1 3 -1 -1 -1
16 475 12 0 32 0.03 -1 4 600 -1 1 -1 -1 -1 3 -1 -1 -1
17 529 19 900 8 0.03 -1 -1 600 -1 1 96 -1 -1 3 -1 -1 -1
18 600 19 900 8 0.03 -1 4 0 -1 1 96 -1 -1 3 -1 -1 -1
'''


def check_jobs(trace):
    assert [one.id for one in trace.requests] == ['14', '16', '17', '18']
    first, empty, long, untimed = trace.requests
    assert (untimed.runs, untimed.terms.duration) == (900, 900)
    assert trace.nodes is None
    assert trace.notes == (
        '1 of 5 jobs have no requested time: they ask for as long as they '
        'ran', 'left out, since it was cancelled before it ran: job 15')
    assert (first.arrival, first.runs, first.terms.duration) == (32, 44, 64800)
    assert first.terms.nodes[0].number == 4
    assert first.terms.nodes[0].need == NEED
    assert first.terms.kind is LeaseKind.BEST_EFFORT
    assert (first.terms.user, empty.terms.user) == ('96', '')
    assert empty.runs == 1
    # It ran for longer than it asked for, and asked for no processors.
    assert (long.runs, long.terms.nodes[0].number) == (600, 8)


def test_swf(tmp_path):
    path = tmp_path / 'jobs.swf'
    path.write_text(JOBS)
    check_jobs(swf.read(path, NEED))


def test_swf_that_is_compressed(tmp_path):
    path = tmp_path / 'jobs.swf.gz'
    path.write_bytes(gzip.compress(JOBS.encode()))
    check_jobs(swf.read(path, NEED))


@pytest.mark.parametrize('text, says', (
    ('1 2 3', r'line 1: no job: expected at least 12 fields, not 3'),
    (JOBS + '1 x' + ' 1' * 12, 'line 9: field 2, submit time: expected a '
     'number from .*, not "x"'),
    ('; nothing', 'no jobs')))
def test_swf_that_is_none(tmp_path, text, says):
    path = tmp_path / 'jobs.swf'
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        swf.read(path, NEED)


def test_swf_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match='No such file'):
        swf.read(tmp_path / 'jobs.swf', NEED)


def test_in_vms(tmp_path):
    path = tmp_path / 'jobs.swf'
    path.write_text(JOBS)
    request = swf.read(path, NEED).requests[0]
    slowed = request.in_vms(0.05, 20)
    assert (slowed.runs, slowed.terms.duration) == (67, 68060)
    # Haizea's own: what is slowed is what it asks for, from what it runs.
    slipped = request.in_vms(0.05, 20, haizea=True)
    assert (slipped.runs, slipped.terms.duration) == (64, 67)
    assert slowed.bare == slipped.bare == request.runs
    # Who is not slowed has nothing to slip in.
    assert (request.in_vms(0.0, 20, haizea=True)
            == request.in_vms(0.0, 20))


def test_lines_of_text(tmp_path):
    path = tmp_path / 'some.lwf'
    path.write_text("0 9415 3438 3000 16 1 1024 0 'NONE.img' 600\n"
                    "# a comment\n\n"
                    "60 -1 100 400 2 2 512 0 'a.img' 4096\n"
                    "0 -60 100 100 2 2 512 0 'a.img' 4096\n")
    reserved, queued, past = lwf.read_text(path, 'r')
    assert past.terms.kind is LeaseKind.RESERVATION and past.terms.start == -60
    assert not lwf.is_xml(path)
    assert (reserved.id, queued.id) == ('r1', 'r4')
    assert reserved.terms.kind is LeaseKind.RESERVATION
    assert not reserved.terms.preemptible and queued.terms.preemptible
    assert (reserved.terms.start, reserved.runs) == (9415, 3000)
    assert queued.terms.kind is LeaseKind.BEST_EFFORT
    assert queued.terms.nodes[0].need == (200, 512)
    assert (queued.terms.image, queued.terms.image_mb) == ('a.img', 4096)
    assert queued.runs == 100


@pytest.mark.parametrize('line, says', (
    ('1 2 3', 'expected 10 fields, submit, start, .*, not 3'),
    ('0 1 x 1 1 1 1 0 i 1', 'line 1: field 3, duration: expected a number'),
    ('0 1 0 1 1 1 1 0 i 1', 'at least a second')))
def test_lines_that_are_none(tmp_path, line, says):
    path = tmp_path / 'some.lwf'
    path.write_text(line)
    with pytest.raises(InputError, match=says):
        lwf.read_text(path)


XML = '''<?xml version="1.0"?>
<lease-workload name="sample">
  <description>Some of each.</description>
  <site>
    <resource-types names="CPU Memory"/>
    <nodes>
      <node-set numnodes="3">
        <res type="CPU" amount="100"/><res type="Memory" amount="1024"/>
      </node-set>
      <node-set numnodes="1">
        <res type="CPU" amount="800"/><res type="Memory" amount="8192"/>
        <attr type="arch" value="arm"/>
      </node-set>
    </nodes>
  </site>
  <lease-requests>
    <lease-request arrival="00:00:00.00">
      <realduration time="00:45:00.00"/>
      <lease id="1" preemptible="true" user="anna">
        <nodes><node-set numnodes="2">
          <res type="CPU" amount="100"/><res type="Memory" amount="512"/>
        </node-set></nodes>
        <start/>
        <duration time="01:00:00.00"/>
        <software><disk-image id="foobar1.img" size="1024"/></software>
      </lease>
    </lease-request>
    <lease-request arrival="00:15:00.00">
      <lease id="2" preemptible="false">
        <nodes><node-set><res type="CPU" amount="100"/>
          <attr type="arch" value="arm"/></node-set></nodes>
        <start><exact time="+00:15:00.00"/></start>
        <duration time="00:30:00.00"/>
        <deadline time="01:00:30.50"/>
        <software><none/></software>
      </lease>
    </lease-request>
    <lease-request arrival="01:00:00">
      <lease id="3" preemptible="false">
        <nodes><node-set numnodes="1">
          <res type="CPU" amount="100"/></node-set></nodes>
        <start><now/></start>
        <duration time="1:00:00:00"/>
      </lease>
    </lease-request>
  </lease-requests>
</lease-workload>
'''


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / 'sample.lwf'
    path.write_text(XML)
    return path


def test_xml(sample):
    assert lwf.is_xml(sample)
    read = lwf.read(sample)
    assert (read.name, read.description) == ('sample', 'Some of each.')
    assert read.site.capacity.tolist() == [[100, 1024]] * 3 + [[800, 8192]]
    first, second, third = read.requests
    assert [one.terms.kind for one in read.requests] == [
        LeaseKind.BEST_EFFORT, LeaseKind.DEADLINE, LeaseKind.IMMEDIATE]
    assert (first.runs, first.terms.duration) == (2700, 3600)
    assert (first.terms.user, first.terms.preemptible) == ('anna', True)
    assert (first.terms.image, first.terms.image_mb) == ('foobar1.img', 1024)
    assert (second.arrival, second.terms.start) == (900, 1800)
    assert second.terms.deadline == 3631
    assert second.terms.image is None
    assert second.terms.nodes[0].attributes == {'arch': 'arm'}
    assert read.site.usable_hosts(second.terms.nodes[0]).tolist() == [
        False, False, False, True]
    assert (third.arrival, third.terms.duration) == (3600, 86400)


def test_what_is_written_is_read_again(sample, tmp_path):
    read = lwf.read(sample)
    lwf.write(read, tmp_path / 'again.lwf')
    again = lwf.read(tmp_path / 'again.lwf')
    assert again.requests == read.requests
    assert (again.name, again.description) == (read.name, read.description)
    assert (again.site.capacity == read.site.capacity).all()
    assert again.site.attributes == read.site.attributes


def test_units_of_a_resource(sample, tmp_path):
    """Three hosts have three CPUs each, and a lease asks for two."""
    one, several = '<res type="CPU" amount="100"/>', (
        '<res type="CPU"><instance amount="100"/><instance amount="60"/>{}'
        '</res>')
    first, *others = XML.split(one)
    sample.write_text(
        first + several.format('<instance amount="100"/>') + others[0]
        + several.format('') + one.join(others[1:]))
    read = lwf.read(sample)
    assert read.site.capacity[:, 0].tolist() == [260] * 3 + [800]
    assert read.site.units[0].tolist() == (
        [[100, 60, 100]] * 3 + [[800, 0, 0]])
    asked = [one.terms.nodes[0] for one in read.requests]
    assert [one.need for one in asked] == [(160, 512), (100, 0), (100, 0)]
    assert [one.units for one in asked] == [{0: (100, 60)}, {}, {}]
    lwf.write(read, tmp_path / 'again.lwf')
    again = lwf.read(tmp_path / 'again.lwf')
    assert again.requests == read.requests
    assert (again.site.columns == read.site.columns).all()
    assert again.site.attributes == read.site.attributes


@pytest.mark.parametrize('old, new, says', (
    ('</lease-workload>', '', 'no element found'),
    ('<site>', '<sight>', 'mismatched tag'),
    ('name="sample">', 'name="sample"><site2/>', None),
    ('names="CPU Memory"', 'names="CPU"',
     'line 8: <res>: type: expected one of CPU, not "Memory"'),
    ('<duration time="01:00:00.00"/>', '',
     'line 19: <lease>: expected a <duration> in it'),
    ('time="01:00:00.00"', 'time="an hour"',
     'line 24: <duration>: time: expected a time like .*, not "an hour"'),
    ('id="2"', 'id="1"', 'line 28: .* an id of its own, not .* "1"'),
    ('id="1" ', '', 'line 19: <lease>: expected the attribute id'),
    ('amount="512"', 'amount="half"',
     'line 21: <res>: amount: expected a whole number from 0 to .*"half"'),
    ('<res type="CPU" amount="100"/>', '<res type="CPU"><instance amount="1"/>'
     '<instance amount="0"/></res>', 'amount: expected a whole number from 1'),
    ('<res type="CPU" amount="100"/>', '<res type="CPU"><instance/></res>',
     '<instance>: expected the attribute amount'),
    ('time="01:00:30.50"', 'time="00:50:00"',
     'line 29: .* lease "2": a duration of 1800 s'),
    ('<res type="CPU" amount="100"/><res type="Memory" amount="1024"/>',
     '<res type="CPU" amount="100"/><res type="CPU" amount="100"/>',
     'expected each type once, not CPU twice'),
    ('<?xml version="1.0"?>', '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b '
     '"c">]>', 'EntitiesForbidden')))
def test_xml_that_is_none(sample, old, new, says):
    assert old in XML
    sample.write_text(XML.replace(old, new, 1))
    if says is None:
        assert lwf.read(sample).name == 'sample'
        return
    with pytest.raises(InputError, match=says):
        lwf.read(sample)
