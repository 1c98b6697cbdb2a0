/* LD_PRELOAD for the QEMU of a box host.
 *
 * Debian 12's QEMU (7.2) may lose what an emulated guest writes while it is
 * live-migrated: pages arrive as they were before.  Where it clears the dirty
 * bits of 64 pages at once, it does not tell the guest's TLB, and writes
 * through old entries go unnoticed.  (Under KVM the kernel notes the writes.)
 * In a block of memory whose length is no multiple of 256 KiB each page is
 * cleared for itself, and the TLB is told; so this adds 64 KiB.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLEARED_AT_ONCE (256 << 10)
#define EXTRA (64 << 10)
#define BACKEND "\"id\":\"pc.ram\",\"size\":"

typedef int main_function(int, char **, char **);

static char *checked(char *text, int length)
{
	return length < 0 ? abort(), NULL : text;
}

/* Add to the memory in "-m MiB" and in its "-object". */
static void enlarge(int count, char **arguments)
{
	unsigned long long size = 0;
	char *found, *rest, *text;
	int i, length;

	for (i = 1; i < count; i++) {
		found = strstr(arguments[i], BACKEND);
		if (!found)
			continue;
		found += strlen(BACKEND);
		size = strtoull(found, &rest, 10);
		if (size % CLEARED_AT_ONCE == 0)
			size += EXTRA;
		length = asprintf(&text, "%.*s%llu%s",
				  (int)(found - arguments[i]), arguments[i],
				  size, rest);
		arguments[i] = checked(text, length);
	}
	for (i = 1; size && i + 1 < count; i++)
		if (!strcmp(arguments[i], "-m")) {
			length = asprintf(&text, "%lluk", size >> 10);
			arguments[i + 1] = checked(text, length);
		}
}

int __libc_start_main(main_function *entry, int count, char **arguments,
		      void (*init)(void), void (*fini)(void),
		      void (*rtld_fini)(void), void *stack_end)
{
	int (*real)(main_function *, int, char **, void (*)(void),
		    void (*)(void), void (*)(void), void *) =
		(__typeof__(real))dlsym(RTLD_NEXT, "__libc_start_main");

	enlarge(count, arguments);
	return real(entry, count, arguments, init, fini, rtld_fini, stack_end);
}
