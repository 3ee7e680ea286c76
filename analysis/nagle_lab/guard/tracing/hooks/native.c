/* Preloaded into what a traced command starts, in the run with native stacks: say before each write to a socket who
 * called it.
 *
 * strace's own unwinder does not know the stacks of what lld linked, which Rust does since 1.90; the C compiler's
 * does. A mark is a system call that cannot succeed, whose path holds the words: strace sees it in the thread that
 * writes, right before the write. See nagle_lab/guard/tracing/strace_output.py for what it means. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <fcntl.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define MARK "/proc/nagle-lab;stack;"

enum { DEEPEST = 64, OURS = 2, LONGEST = 4000 }; /* frames; of them those of this file; bytes of a path */

/* A place in a mapped file: what to look for, and what dl_iterate_phdr found. */
typedef struct {
    ElfW(Addr) address;
    ElfW(Addr) offset; /* in the file */
    const char *file;  /* "": of the program itself */
    int is_found;
} Place;

typedef struct {
    char text[LONGEST];
    size_t length;
} Text;

static char program[1024];
static __thread int is_busy; /* the unwinder's own writes get no marks */

/* Appends a text; one that does not fit is left out whole. */
static int add(Text *to, const char *format, ...) {
    va_list values;
    va_start(values, format);
    size_t room = sizeof to->text - to->length;
    int length = vsnprintf(to->text + to->length, room, format, values);
    va_end(values);
    if (length < 0 || (size_t)length >= room) {
        to->text[to->length] = 0;
        return 0;
    }
    to->length += (size_t)length;
    return 1;
}

static int compare(struct dl_phdr_info *info, size_t size, void *data) {
    Place *place = data;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) at = place->address - info->dlpi_addr;
        if (part->p_type == PT_LOAD && at - part->p_vaddr < part->p_memsz) {
            place->offset = at - part->p_vaddr + part->p_offset;
            place->file = info->dlpi_name;
            return place->is_found = 1;
        }
    }
    return 0;
}

/* One frame: ";file+offset", or ";+offset" in the same file as before; ",symbol+offset" where an exported function
 * has it. */
static int add_frame(Text *to, void *address, const char **last) {
    Place place = {(ElfW(Addr))address, 0, "", 0};
    dl_iterate_phdr(compare, &place);
    if (!place.is_found) return add(to, ";+0");
    const char *file = *place.file ? place.file : program;
    if (strpbrk(file, ";,\"\n")) return add(to, ";+0");
    int is_same = *last && !strcmp(*last, file);
    if (!add(to, ";%s+%lx", is_same ? "" : file, (unsigned long)place.offset)) return 0;
    *last = file;
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    if (dladdr1(address, &info, (void **)&symbol, RTLD_DL_SYMENT) && info.dli_sname && symbol) {
        unsigned long behind = (unsigned long)((char *)address - (char *)info.dli_saddr);
        if (behind <= symbol->st_size && !strpbrk(info.dli_sname, ";,+")) {
            return add(to, ",%s+%lx", info.dli_sname, behind);
        }
    }
    return 1;
}

__attribute__((noinline)) static void tell(int fd) {
    int error = errno;
    struct stat status;
    if (!is_busy && !fstat(fd, &status) && S_ISSOCK(status.st_mode)) {
        is_busy = 1;
        void *frames[DEEPEST];
        int count = backtrace(frames, DEEPEST);
        Text text = {MARK, sizeof MARK - 1};
        const char *last = NULL;
        int fits = add(&text, "%d", fd);
        for (int i = OURS; fits && i < count; i++) fits = add_frame(&text, frames[i], &last);
        rmdir(text.text);
        is_busy = 0;
    }
    errno = error;
}

__attribute__((constructor)) static void start(void) {
    void *frame;
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    program[length > 0 ? length : 0] = 0;
    backtrace(&frame, 1); /* loads the unwinder now, not in the middle of a write */
}

/* The function that ours replaces. */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define COVER(type, name, parameters, ...)          \
    EXPORTED type name parameters {                 \
        static __typeof__(&name) next;              \
        if (!next) next = NEXT(name);               \
        tell(fd);                                   \
        return next(__VA_ARGS__);                   \
    }

COVER(ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
COVER(ssize_t, writev, (int fd, const struct iovec *parts, int count), fd, parts, count)
COVER(ssize_t, send, (int fd, const void *data, size_t size, int flags), fd, data, size, flags)
COVER(ssize_t, sendto,
      (int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length),
      fd, data, size, flags, to, length)
COVER(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), fd, message, flags)
COVER(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned count, int flags), fd, messages, count, flags)
COVER(ssize_t, sendfile, (int fd, int from, off_t *offset, size_t count), fd, from, offset, count)
COVER(ssize_t, sendfile64, (int fd, int from, off64_t *offset, size_t count), fd, from, offset, count)
COVER(ssize_t, splice, (int from, off64_t *at, int fd, off64_t *offset, size_t count, unsigned flags),
      from, at, fd, offset, count, flags)
COVER(int, setsockopt, (int fd, int level, int name, const void *value, socklen_t length),
      fd, level, name, value, length)
