/* The functions of JNI and JVMTI that java.c calls, at the places in their tables that the specifications number. So
 * it compiles without a JDK, and loads into every Java from 8 on. tests/unit/test_java_hook.py compares it with
 * jvmti.h. */
#ifndef NAGLE_LAB_JAVA_H
#define NAGLE_LAB_JAVA_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t jint;
typedef int64_t jlong;
typedef uint8_t jboolean;
typedef struct opaque *jobject;
typedef struct opaque_id *jid; /* of a method or field */

typedef const struct jni *JNIEnv;
struct jni {
    void *to_17[17];
    void (*ExceptionClear)(JNIEnv *);
    void *to_19[1];
    jint (*PushLocalFrame)(JNIEnv *, jint);
    jobject (*PopLocalFrame)(JNIEnv *, jobject);
    void *to_31[10];
    jobject (*GetObjectClass)(JNIEnv *, jobject);
    void *to_33[1];
    jid (*GetMethodID)(JNIEnv *, jobject, const char *, const char *);
    jobject (*CallObjectMethod)(JNIEnv *, jobject, jid, ...);
    void *to_94[59];
    jid (*GetFieldID)(JNIEnv *, jobject, const char *, const char *);
    jobject (*GetObjectField)(JNIEnv *, jobject, jid);
    void *to_100[4];
    jint (*GetIntField)(JNIEnv *, jobject, jid);
    void *to_169[68];
    const char *(*GetStringUTFChars)(JNIEnv *, jobject, jboolean *);
    void (*ReleaseStringUTFChars)(JNIEnv *, jobject, const char *);
    void *to_228[57];
    jboolean (*ExceptionCheck)(JNIEnv *);
};

typedef const struct invoke *JavaVM;
struct invoke {
    void *to_6[6];
    jint (*GetEnv)(JavaVM *, void **, jint);
};

typedef struct {
    jid method;
    jlong location;
} Frame;

typedef struct {
    jlong start;
    jint line;
} Line;

typedef const struct jvmti *Jvmti;
struct jvmti {
    void *to_1[1];
    jint (*SetEventNotificationMode)(Jvmti *, jint, jint, jobject, ...);
    void *to_46[44];
    jint (*Deallocate)(Jvmti *, void *);
    jint (*GetClassSignature)(Jvmti *, jobject, char **, char **);
    void *to_49[1];
    jint (*GetSourceFileName)(Jvmti *, jobject, char **);
    void *to_63[13];
    jint (*GetMethodName)(Jvmti *, jid, char **, char **, char **);
    jint (*GetMethodDeclaringClass)(Jvmti *, jid, jobject *);
    void *to_69[4];
    jint (*GetLineNumberTable)(Jvmti *, jid, jint *, Line **);
    void *to_103[33];
    jint (*GetStackTrace)(Jvmti *, jobject, jint, jint, Frame *, jint *);
    void *to_105[1];
    jint (*GetTag)(Jvmti *, jobject, jlong *);
    jint (*SetTag)(Jvmti *, jobject, jlong);
    void *to_121[14];
    jint (*SetEventCallbacks)(Jvmti *, const void *, jint);
    void *to_130[8];
    jint (*GetSystemProperty)(Jvmti *, const char *, char **);
    void *to_141[10];
    jint (*AddCapabilities)(Jvmti *, const uint32_t *);
};

enum {
    JVMTI_VERSION = 0x30010100, /* 1.1: Java 6 and later */
    ENABLE = 1,
    EVENT_VM_INIT = 50,
    EVENT_NATIVE_METHOD_BIND = 67,
    FIRST_EVENT = 50, /* of the table of callbacks */
    CAN_TAG_OBJECTS = 1 << 0,
    CAN_GET_SOURCE_FILE_NAME = 1 << 11,
    CAN_GET_LINE_NUMBERS = 1 << 12,
    CAN_GENERATE_NATIVE_METHOD_BIND_EVENTS = 1 << 30
};

#endif
