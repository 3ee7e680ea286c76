/* Loaded by every Java that a traced command starts: say before each write to a socket where it is in the program.
 *
 * A mark is a system call that cannot succeed, whose path holds the words: strace sees it in the thread that writes,
 * right before the write. See nagle_lab/guard/tracing/strace_output.py for what it means. All writes of the runtime
 * pass a few native methods; when one is bound we put ourselves before it. No class of the program is changed. */
#define _GNU_SOURCE
#include "java.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))
#define MARK "/proc/nagle-lab;"
#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { DEEPEST = 256, MOST_OF_LIBRARIES = 24, MOST_OF_PROGRAM = 8, LONGEST = 200 };

typedef enum { PLUMBING = 1, CARRIER, LIBRARY, PROGRAM } Kind;

/* A class, stored as the tag of its object. */
typedef struct {
    Kind kind;
    char *name; /* "Server$Handler", without its package */
    char *file; /* package and source; for the program's classes the origin and // before these */
} Class;

static Jvmti *jvmti;
static char *main_jar; /* the jar that java -jar runs; NULL: started in another way */

/* Classes that only pass on what others write. Other parts of the runtime, such as its HTTP server, are libraries. */
static const char *const plumbing[] = {
    "java/lang/", "java/io/", "java/nio/", "java/util/", "java/security/", "java/net/Socket", "java/net/PlainSocket",
    "java/net/SocksSocket", "java/net/AbstractPlainSocket", "java/net/ServerSocket", "java/net/DelegatingSocket",
    "java/net/HttpConnectSocket", "javax/net/", "jdk/internal/",
    "sun/nio/", "sun/net/ext/", "sun/security/", "sun/reflect/", "com/sun/net/ssl/",
};
static const char *const runtime[] = {"java/", "javax/", "jdk/", "sun/", "com/sun/"};
static const char *const not_plumbing[] = {"jdk/internal/net/"};

static int starts(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

static int starts_any(const char *text, const char *const *with, size_t count) {
    while (count--)
        if (starts(text, with[count]))
            return 1;
    return 0;
}

static int ends(const char *text, const char *with) {
    size_t length = strlen(text), tail = strlen(with);
    return length >= tail && strcmp(text + length - tail, with) == 0;
}

/* The URL from which a class was loaded, which the caller frees; NULL: it is the runtime's, or not known. */
static char *location(JNIEnv *env, jobject class) {
    static const char *const steps[][2] = {
        {"getProtectionDomain", "()Ljava/security/ProtectionDomain;"},
        {"getCodeSource", "()Ljava/security/CodeSource;"},
        {"getLocation", "()Ljava/net/URL;"},
        {"toExternalForm", "()Ljava/lang/String;"},
    };
    jobject at = class;
    char *found = NULL;
    if ((*env)->PushLocalFrame(env, 16) != 0)
        return NULL;
    for (size_t i = 0; at && i < COUNT(steps); i++) {
        jid method = (*env)->GetMethodID(env, (*env)->GetObjectClass(env, at), steps[i][0], steps[i][1]);
        at = method ? (*env)->CallObjectMethod(env, at, method) : NULL;
        if ((*env)->ExceptionCheck(env)) {
            (*env)->ExceptionClear(env);
            at = NULL;
        }
    }
    const char *text = at ? (*env)->GetStringUTFChars(env, at, NULL) : NULL;
    if (text) {
        found = strdup(text);
        (*env)->ReleaseStringUTFChars(env, at, text);
    }
    (*env)->PopLocalFrame(env, NULL);
    return found;
}

/* "jar:file:/a%20b/app.jar!/BOOT-INF/classes!/" as "/a b/app.jar/BOOT-INF/classes", in place. */
static char *path_of(char *url) {
    char *from = strchr(url, '/'), *to = url, *end;
    while (from && *from) {
        char digits[3] = {from[0] == '%' ? from[1] : 0, from[0] == '%' && from[1] ? from[2] : 0, 0};
        long code = strtol(digits, &end, 16);
        if (end == digits + 2) {
            *to++ = (char)code;
            from += 3;
        } else if ((*from == '!' && (from[1] == '/' || (to > url && to[-1] == '/'))) ||
                   (*from == '/' && to > url && to[-1] == '/')) {
            from++;
        } else {
            *to++ = *from++;
        }
    }
    while (to > url + 1 && to[-1] == '/')
        to--;
    *to = 0;
    return url;
}

/* The kind of a class, by its name and its origin. A jar is a library, unless it is the one that runs. */
static Kind kind_of(const char *name, const char *path) {
    int of_runtime = starts_any(name, runtime, COUNT(runtime));
    if (of_runtime && starts_any(name, plumbing, COUNT(plumbing)))
        return starts_any(name, not_plumbing, COUNT(not_plumbing)) ? LIBRARY : PLUMBING;
    if (!path || !*path || of_runtime)
        return LIBRARY;
    if (strstr(name, "io/netty/")) /* it transports other libraries' data; some contain a copy of it */
        return CARRIER;
    return ends(path, ".jar") && !(main_jar && ends(path, main_jar)) ? LIBRARY : PROGRAM;
}

/* The source file of a class, in the form of marks. */
static char *file_of(Kind kind, const char *name, const char *source, const char *path) {
    char *file = NULL;
    const char *slash = strrchr(name, '/');
    int package = slash ? (int)(slash + 1 - name) : 0;
    if (kind == PROGRAM && strcmp(strrchr(path, '/') + 1, source) == 0)
        return strdup(path); /* java Server.java */
    if (asprintf(&file, "%s%s%.*s%s", kind == PROGRAM ? path : "", kind == PROGRAM ? "//" : "", package, name, source) < 0)
        return NULL;
    return file;
}

static Class *describe(JNIEnv *env, jobject object) {
    char *signature = NULL, *source = NULL;
    Class *class = calloc(1, sizeof *class);
    if (!class || (*jvmti)->GetClassSignature(jvmti, object, &signature, NULL) != 0 || strlen(signature) < 3) {
        free(class);
        return NULL;
    }
    signature[strlen(signature) - 1] = 0; /* "Lorg/example/Server;" */
    const char *name = signature + 1, *slash = strrchr(name, '/');
    if ((*jvmti)->GetSourceFileName(jvmti, object, &source) != 0)
        source = NULL;
    char *url = starts_any(name, plumbing, COUNT(plumbing)) ? NULL : location(env, object);
    const char *path = url && !starts(url, "jrt:") ? path_of(url) : NULL;
    class->kind = strstr(name, "$$Lambda") || !source ? PLUMBING : kind_of(name, path);
    class->name = strdup(slash ? slash + 1 : name);
    class->file = file_of(class->kind, name, source ? source : "", path);
    free(url);
    (*jvmti)->Deallocate(jvmti, signature);
    (*jvmti)->Deallocate(jvmti, source);
    if (class->name && class->file)
        return class;
    free(class->name);
    free(class->file);
    free(class);
    return NULL;
}

static Class *class_of(JNIEnv *env, jid method) {
    jobject object;
    jlong tag = 0;
    if ((*jvmti)->GetMethodDeclaringClass(jvmti, method, &object) != 0)
        return NULL;
    if ((*jvmti)->GetTag(jvmti, object, &tag) == 0 && tag == 0) {
        tag = (jlong)(intptr_t)describe(env, object);
        (*jvmti)->SetTag(jvmti, object, tag);
    }
    return (Class *)(intptr_t)tag;
}

static int line_of(const Frame *frame) {
    jint count = 0;
    int line = 0;
    jlong best = -1;
    Line *table = NULL;
    if ((*jvmti)->GetLineNumberTable(jvmti, frame->method, &count, &table) != 0)
        return 0;
    for (jint i = 0; i < count; i++)
        if (table[i].start <= frame->location && table[i].start > best) {
            best = table[i].start;
            line = table[i].line;
        }
    (*jvmti)->Deallocate(jvmti, table);
    return line;
}

/* Words of a mark, with ; between them; a word that does not fit is left out whole. */
typedef struct {
    char text[4000];
    size_t used;
} Words;

static void add(Words *words, const char *file, int line, const char *class, const char *method) {
    const char *cut = strlen(file) > LONGEST ? file + strlen(file) - LONGEST : file;
    size_t left = sizeof words->text - words->used;
    char *at = words->text + words->used;
    int length = snprintf(at, left, ";%s%.*s;%d;%.100s.%.80s", cut == file ? "" : "…", LONGEST, cut, line, class, method);
    if (length < 0 || (size_t)length >= left)
        *at = 0;
    else
        words->used += (size_t)length;
}

static void replace(char *text, char old, char new) {
    while ((text = strchr(text, old)))
        *text++ = new;
}

/* The libraries' frames up to the program's, the innermost first, and then the program's. In `call` the method of the
 * runtime that the first of them called. What is less than `least` is left out. */
static void frames_of(JNIEnv *env, Kind least, Words *words, char *call, size_t size) {
    Frame frames[DEEPEST];
    jint count = 0;
    int libraries = 0, program = 0, passed = 0; /* passed: a frame that is not of the runtime */
    if ((*jvmti)->GetStackTrace(jvmti, NULL, 0, DEEPEST, frames, &count) != 0)
        return;
    for (jint i = 0; i < count && program < MOST_OF_PROGRAM; i++) {
        char *method = NULL;
        Class *class = class_of(env, frames[i].method);
        int is_native = frames[i].location < 0; /* it has no line */
        passed |= class && class->kind != PLUMBING;
        if (!class || (class->kind != PLUMBING && (class->kind < least || is_native)))
            continue;
        if (class->kind < PROGRAM && (program || libraries == MOST_OF_LIBRARIES))
            continue;
        if ((*jvmti)->GetMethodName(jvmti, frames[i].method, &method, NULL, NULL) != 0)
            continue;
        if (class->kind == PLUMBING) {
            const char *inner = strrchr(class->name, '$');
            if (!passed)
                snprintf(call, size, "%s.%s", inner && inner[1] ? inner + 1 : class->name, method);
        } else {
            replace(method, ';', ',');
            add(words, class->file, line_of(&frames[i]), class->name, method);
            libraries += class->kind < PROGRAM;
            program += class->kind == PROGRAM;
        }
        (*jvmti)->Deallocate(jvmti, method);
    }
}

static int is_socket(int fd) {
    struct stat about;
    return fd >= 0 && fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode);
}

/* Write a mark for the current line; `option`: the call is setsockopt(). */
static void tell(JNIEnv *env, int fd, long length, int option) {
    char call[200] = "write", path[sizeof MARK + sizeof call + 4100];
    Words words = {"", 0};
    int error = errno;
    if (is_socket(fd) && (*env)->PushLocalFrame(env, DEEPEST + 16) == 0) {
        frames_of(env, LIBRARY, &words, call, sizeof call);
        if (!words.used)
            frames_of(env, CARRIER, &words, call, sizeof call);
        (*env)->PopLocalFrame(env, NULL);
        snprintf(path, sizeof path, MARK "%d;%ld;%s%s", fd, length, option ? "setsockopt" : call, words.text);
        path[4095] = 0;
        rmdir(path);
    }
    errno = error;
}

/* The number in a java.io.FileDescriptor. */
static int number_of(JNIEnv *env, jobject descriptor) {
    if (!descriptor)
        return -1;
    jid field = (*env)->GetFieldID(env, (*env)->GetObjectClass(env, descriptor), "fd", "I");
    return field ? (*env)->GetIntField(env, descriptor, field) : -1;
}

static long length_of(jlong address, jint count) {
    const struct iovec *vector = (const struct iovec *)(intptr_t)address;
    long sum = 0;
    for (jint i = 0; i < count; i++)
        sum += (long)vector[i].iov_len;
    return sum;
}

/* The native methods that write, or set an option, each with ourselves before it. `result` is its type and `parameters`
 * its own, of which `passed` are handed on; `fd` is the socket, `length` the bytes or 0 where not known, `option` whether
 * it sets an option of TCP; it is told only where `when` is true. */
#define COVER(name, result, parameters, passed, fd, length, option, when) \
    static result (*original_##name) parameters; \
    static result name parameters { \
        if (when) \
            tell(env, fd, length, option); \
        return original_##name passed; \
    }
#define STATIC JNIEnv *env, jobject class
#define BUFFER (STATIC, jobject at, jlong address, jint length)
#define PASSED (env, class, at, address, length)

COVER(file_write, jint, BUFFER, PASSED, number_of(env, at), length, 0, 1)
COVER(file_writev, jlong, BUFFER, PASSED, number_of(env, at), length_of(address, length), 0, 1)
COVER(socket_write, jint, BUFFER, PASSED, number_of(env, at), length, 0, 1)
COVER(socket_writev, jlong, BUFFER, PASSED, number_of(env, at), length_of(address, length), 0, 1)
COVER(unix_write, jint, BUFFER, PASSED, number_of(env, at), length, 0, 1)
COVER(unix_writev, jlong, BUFFER, PASSED, number_of(env, at), length_of(address, length), 0, 1)
COVER(transfer, jlong, (STATIC, jobject from, jlong at, jlong count, jobject to), (env, class, from, at, count, to),
      number_of(env, to), 0, 0, 1)
COVER(transfer_21, jlong, (STATIC, jobject from, jlong at, jlong count, jobject to, jboolean append),
      (env, class, from, at, count, to, append), number_of(env, to), 0, 0, 1)
COVER(set_option, void, (STATIC, jobject at, jboolean convert, jint level, jint option, jint value, jboolean ipv6),
      (env, class, at, convert, level, option, value, ipv6), number_of(env, at), 0, 1, level == 6)

/* Java 8 to 12, and 13 to 17 with -Djdk.net.usePlainSocketImpl */
COVER(stream_write, void, (STATIC, jobject at, jobject data, jint from, jint length), (env, class, at, data, from, length),
      number_of(env, at), length, 0, 1)

/* The socket of a java.net.SocketImpl. */
static int socket_of(JNIEnv *env, jobject socket) {
    jid field = (*env)->GetFieldID(env, (*env)->GetObjectClass(env, socket), "fd", "Ljava/io/FileDescriptor;");
    return field ? number_of(env, (*env)->GetObjectField(env, socket, field)) : -1;
}

COVER(plain_option, void, (STATIC, jint option, jboolean on, jobject value), (env, class, option, on, value),
      socket_of(env, class), 0, 1, option == 1)

/* Netty's own: epoll */
COVER(netty_write, jint, (STATIC, jint fd, jobject data, jint from, jint to), (env, class, fd, data, from, to), fd,
      to - from, 0, 1)
COVER(netty_address, jint, (STATIC, jint fd, jlong data, jint from, jint to), (env, class, fd, data, from, to), fd,
      to - from, 0, 1)
COVER(netty_writev, jlong, (STATIC, jint fd, jobject data, jint from, jint count, jlong most),
      (env, class, fd, data, from, count, most), fd, 0, 0, 1)
COVER(netty_addresses, jlong, (STATIC, jint fd, jlong data, jint count), (env, class, fd, data, count), fd,
      length_of(data, count), 0, 1)

#define FD "Ljava/io/FileDescriptor;"
#define METHOD(class, method, signature, name) {"L" class ";", method, signature, (void *)name, (void **)&original_##name}

static const struct {
    const char *class, *method, *signature; /* Netty's classes by the end of the name: other projects have copies */
    void *ours;
    void **original;
} covered[] = {
    METHOD("sun/nio/ch/FileDispatcherImpl", "write0", "(" FD "JI)I", file_write),
    METHOD("sun/nio/ch/FileDispatcherImpl", "writev0", "(" FD "JI)J", file_writev),
    METHOD("sun/nio/ch/SocketDispatcher", "write0", "(" FD "JI)I", socket_write),
    METHOD("sun/nio/ch/SocketDispatcher", "writev0", "(" FD "JI)J", socket_writev),
    METHOD("sun/nio/ch/UnixDispatcher", "write0", "(" FD "JI)I", unix_write),
    METHOD("sun/nio/ch/UnixDispatcher", "writev0", "(" FD "JI)J", unix_writev),
    METHOD("sun/nio/ch/FileChannelImpl", "transferTo0", "(" FD "JJ" FD ")J", transfer),
    METHOD("sun/nio/ch/FileDispatcherImpl", "transferTo0", "(" FD "JJ" FD "Z)J", transfer_21),
    METHOD("sun/nio/ch/Net", "setIntOption0", "(" FD "ZIIIZ)V", set_option),
    METHOD("java/net/SocketOutputStream", "socketWrite0", "(" FD "[BII)V", stream_write),
    METHOD("java/net/PlainSocketImpl", "socketSetOption0", "(IZLjava/lang/Object;)V", plain_option),
    METHOD("io/netty/channel/unix/FileDescriptor", "write", "(ILjava/nio/ByteBuffer;II)I", netty_write),
    METHOD("io/netty/channel/unix/FileDescriptor", "writeAddress", "(IJII)I", netty_address),
    METHOD("io/netty/channel/unix/FileDescriptor", "writev", "(I[Ljava/nio/ByteBuffer;IIJ)J", netty_writev),
    METHOD("io/netty/channel/unix/FileDescriptor", "writevAddresses", "(IJI)J", netty_addresses),
};

static void on_bind(Jvmti *from, JNIEnv *env, jobject thread, jid method, void *address, void **instead) {
    char *name = NULL, *signature = NULL, *class = NULL;
    jobject object;
    (void)from, (void)env, (void)thread;
    if ((*jvmti)->GetMethodName(jvmti, method, &name, &signature, NULL) == 0 &&
        (*jvmti)->GetMethodDeclaringClass(jvmti, method, &object) == 0 &&
        (*jvmti)->GetClassSignature(jvmti, object, &class, NULL) == 0)
        for (size_t i = 0; i < COUNT(covered); i++)
            if (strcmp(name, covered[i].method) == 0 && strcmp(signature, covered[i].signature) == 0 &&
                ends(class, covered[i].class + (starts(covered[i].class, "Lio/netty/") ? 1 : 0)) &&
                address != covered[i].ours) {
                *covered[i].original = address;
                *instead = covered[i].ours;
            }
    (*jvmti)->Deallocate(jvmti, name);
    (*jvmti)->Deallocate(jvmti, signature);
    (*jvmti)->Deallocate(jvmti, class);
}

static char *property(const char *name) {
    char *value = NULL;
    return (*jvmti)->GetSystemProperty(jvmti, name, &value) == 0 ? value : NULL;
}

/* With java -jar the class path is that jar, and the command begins with it. */
static void on_start(Jvmti *from, JNIEnv *env, jobject thread) {
    char *jar = property("java.class.path"), *command = property("sun.java.command");
    (void)from, (void)env, (void)thread;
    if (jar && command && *jar && starts(command, jar)) {
        const char *slash = strrchr(jar, '/');
        if (asprintf(&main_jar, "/%s", slash ? slash + 1 : jar) < 0)
            main_jar = NULL;
    }
    (*jvmti)->Deallocate(jvmti, jar);
    (*jvmti)->Deallocate(jvmti, command);
    rmdir(MARK "hook;java");
}

/* Failures are ignored: the program continues as it would without us. */
EXPORTED jint Agent_OnLoad(JavaVM *vm, char *options, void *reserved) {
    static const uint32_t capabilities[4] = {CAN_TAG_OBJECTS | CAN_GET_SOURCE_FILE_NAME | CAN_GET_LINE_NUMBERS |
                                             CAN_GENERATE_NATIVE_METHOD_BIND_EVENTS};
    void *callbacks[EVENT_NATIVE_METHOD_BIND - FIRST_EVENT + 1] = {NULL};
    (void)options, (void)reserved;
    if ((*vm)->GetEnv(vm, (void **)&jvmti, JVMTI_VERSION) != 0 || (*jvmti)->AddCapabilities(jvmti, capabilities) != 0)
        return 0;
    callbacks[EVENT_VM_INIT - FIRST_EVENT] = (void *)on_start;
    callbacks[EVENT_NATIVE_METHOD_BIND - FIRST_EVENT] = (void *)on_bind;
    (*jvmti)->SetEventCallbacks(jvmti, callbacks, sizeof callbacks);
    (*jvmti)->SetEventNotificationMode(jvmti, ENABLE, EVENT_VM_INIT, NULL);
    (*jvmti)->SetEventNotificationMode(jvmti, ENABLE, EVENT_NATIVE_METHOD_BIND, NULL);
    return 0;
}
