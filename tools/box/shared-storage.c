/* LD_PRELOAD for the libvirtd of a box host.
 *
 * libvirt allows a live migration only if the disk lies on a file system that
 * it knows to be shared (NFS, GFS2, ...).  The hosts of the box share one
 * directory of one machine, which is as shared as storage can be, but ext4.
 * For paths below SHARED_PREFIX this answers "NFS".
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#define NFS_SUPER_MAGIC 0x6969

static int is_shared(const char *path)
{
	const char *prefix = getenv("SHARED_PREFIX");

	return prefix && path && !strncmp(path, prefix, strlen(prefix));
}

#define OVERRIDE(name, type)                                                  \
	int name(const char *path, struct type *buf)                          \
	{                                                                     \
		static int (*real)(const char *, struct type *);              \
		int result;                                                   \
									      \
		if (!real)                                                    \
			real = (int (*)(const char *, struct type *))         \
				dlsym(RTLD_NEXT, #name);                      \
		result = real(path, buf);                                     \
		if (!result && is_shared(path))                               \
			buf->f_type = NFS_SUPER_MAGIC;                        \
		return result;                                                \
	}

OVERRIDE(statfs, statfs)
OVERRIDE(statfs64, statfs64)
