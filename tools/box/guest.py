# SPDX-License-Identifier: Apache-2.0

"""The guest: Debian's cloud kernel and a busybox that counts its work.

The image's disk is a formality (Nova wants one); kernel and initramfs are
Glance images of their own, so a guest boots in seconds without KVM.
"""

import os
import pathlib
import re
import shutil
import tempfile

import layout
from shell import BoxError, run

MODULES = ('evdev', 'button',
           # Loaded by guests whose work is with a disk or a link.
           'virtio_ring', 'virtio', 'virtio_pci_modern_dev',
           'virtio_pci_legacy_dev', 'virtio_pci', 'virtio_blk', 'failover',
           'net_failover', 'virtio_net')
#: With a small share of a CPU the kernel's checks of timers against each other
#: fail, which hangs or restarts a guest that KVM does not tell to trust them.
#: Without the last three a boot takes a sixth more of an emulated CPU.
COMMAND_LINE = ('console=ttyS0 quiet panic=-1 random.trust_cpu=on '
                'no_timer_check tsc=reliable work={work} '
                'mitigations=off nokaslr cryptomgr.notests')

#: A guest's boot and its finished units of work, as it prints them. Whole
#: lines only: the last one may be half written, and a character may have got
#: lost when the guest was moved or saved.
UNITS = re.compile(rb'UNITS (\S+) (\d+) \1 \2\r?\n')


def console(uuid: str) -> pathlib.Path:
    """Return the console log of a server, wherever it runs."""
    return layout.SHARED / 'instances' / uuid / 'console.log'


def said(uuid: str) -> bytes:
    """Return what a server has said, nothing if it is not there yet."""
    try:
        return console(uuid).read_bytes()
    except FileNotFoundError:
        return b''


def last_units(console: pathlib.Path) -> tuple[bytes, int] | None:
    """Return a guest's boot and its finished units; None if it told none.

    :raises FileNotFoundError: if there is no such console log.
    """
    with open(console, 'rb') as log:
        log.seek(0, os.SEEK_END)
        log.seek(max(0, log.tell() - 400))
        found = UNITS.findall(log.read())
    return (found[-1][0], int(found[-1][1])) if found else None


def emulated(work: str, console: pathlib.Path) -> list[str]:
    """Return a command that runs a guest without Nova and libvirt."""
    return ['qemu-system-x86_64', '-nodefaults', '-no-user-config',
            '-display', 'none', '-accel', 'tcg,thread=single,tb-size=32',
            '-m', '128', '-kernel', str(layout.GUEST / 'vmlinuz'),
            '-initrd', str(layout.GUEST / 'initrd.gz'),
            '-append', COMMAND_LINE.format(work=work),
            '-serial', f'file:{console}']


_DOMAIN = '''\
<domain type="qemu">
  <name>{name}</name>
  <metadata><nova:instance
      xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
    <nova:name>{name}</nova:name>
    <nova:flavor name="{name}"><nova:vcpus>1</nova:vcpus>
      <nova:extraSpecs>{specs}</nova:extraSpecs></nova:flavor>
  </nova:instance></metadata>
  <memory unit="MiB">128</memory>
  <vcpu>1</vcpu>
  <os>
    <type arch="x86_64" machine="pc">hvm</type>
    <kernel>{guest}/vmlinuz</kernel>
    <initrd>{guest}/initrd.gz</initrd>
    <cmdline>{command}</cmdline>
  </os>
  <features><acpi/><tcg><tb-cache unit="MiB">32</tb-cache></tcg></features>
  <devices>{devices}</devices>
</domain>
'''


def domain(name: str, work: str, devices: str, secondary: bool = True) -> str:
    """Return libvirt's XML of a guest that Nova does not know.

    Its metadata is what Nova writes for a secondary, or for a primary.
    """
    return _DOMAIN.format(
        name=name, guest=layout.GUEST, devices=devices,
        command=COMMAND_LINE.format(work=work),
        specs='<nova:extraSpec name="lifecycle:preemptable">true'
              '</nova:extraSpec>' if secondary else '')


def key() -> str:
    """Return what changes when the image has to be built anew."""
    return (layout.HERE / 'guest-init.sh').read_text() + ' '.join(MODULES)


def build() -> None:
    """Make kernel, initramfs and disk under the state directory."""
    layout.GUEST.mkdir(parents=True, exist_ok=True)
    depends = run(['apt-cache', 'depends', 'linux-image-cloud-amd64']).stdout
    found = re.search(r'Depends: (linux-image-\S+-cloud-amd64)', depends)
    if not found:
        raise BoxError('no linux-image-cloud-amd64 in the package lists; '
                       'run apt-get update')
    with tempfile.TemporaryDirectory(dir=layout.GUEST) as temporary:
        work = pathlib.Path(temporary)
        work.chmod(0o755)
        run(['apt-get', '-q', 'download', found[1]], cwd=work, log='guest')
        package = next(work.glob('*.deb'))
        run(['dpkg', '-x', package, work / 'kernel'], log='guest')
        shutil.copy(next((work / 'kernel/boot').glob('vmlinuz-*')),
                    layout.GUEST / 'vmlinuz')
        root = work / 'root'
        for name in ('bin', 'lib', 'dev', 'proc', 'sys', 'etc', 'tmp'):
            (root / name).mkdir(parents=True)
        shutil.copy('/bin/busybox', root / 'bin/busybox')
        shutil.copy(layout.HERE / 'guest-init.sh', root / 'init')
        (root / 'init').chmod(0o755)
        for module in MODULES:
            for path in (work / 'kernel/lib/modules').rglob(f'{module}.ko*'):
                target = root / 'lib' / path.name
                shutil.copy(path, target)
                if target.suffix == '.xz':
                    run(['xz', '-d', target])
        run(['mknod', root / 'dev/console', 'c', '5', '1'])
        run(['sh', '-c', 'find . | cpio -o -H newc --quiet | gzip -9 > '
             f'{layout.GUEST}/initrd.gz'], cwd=root)
    run(['qemu-img', 'create', '-q', '-f', 'raw', layout.GUEST / 'disk.raw',
         '1M'])
