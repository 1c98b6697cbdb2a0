# SPDX-License-Identifier: Apache-2.0

"""Sample workloads in each format."""

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
