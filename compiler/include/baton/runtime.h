/* Libraries that Baton exported, in C: load, look, run. Link with libbaton_runtime.
 *
 *     baton_library* library;
 *     baton_session* session;
 *     if (baton_library_load("resnet18.so", &library) != 0 ||
 *         baton_session_create(library, 2, &session) != 0) {
 *       fprintf(stderr, "%s\n", baton_last_error());
 *       return 1;
 *     }
 *     memcpy(baton_session_input(session, 0), image, bytes_of_image);
 *     if (baton_session_run(session) != 0) { ... }
 *     baton_tensor scores;
 *     baton_session_output(session, 0, &scores);
 *
 * Functions that return an int return 0 for success; otherwise `baton_last_error` says in this
 * thread what went wrong. CPU libraries (.so) only. docs/cpp.md tells more.
 */
#ifndef BATON_RUNTIME_H_
#define BATON_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BATON_API __attribute__((visibility("default")))
#else
#define BATON_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A loaded library: its code, and its weights, which are mapped from the file. */
typedef struct baton_library baton_library;

/* What runs a library, with inputs and intermediate tensors of its own. One thread at a time may
 * use a session; several sessions of one library may run at a time and share its weights. */
typedef struct baton_session baton_session;

/* An input or an output. */
typedef struct {
  const char* name;
  const char* dtype;    /* "float32", "int64", "bool"... as TVM names it */
  int32_t ndim;
  const int64_t* shape; /* -1 where only running tells */
} baton_tensor_info;

/* A result. It belongs to the session and is valid until this runs again or is destroyed. */
typedef struct {
  const void* data;
  const char* dtype;
  int32_t ndim;
  const int64_t* shape;
  size_t nbytes;
} baton_tensor;

/* The message of the last error in this thread; "" if there was none. */
BATON_API const char* baton_last_error(void);

/* Load an exported .so. Before any of its code is loaded: the file is whole, it is Baton's, it is for
 * this kind of processor, and this CPU has the features that the code uses. */
BATON_API int baton_library_load(const char* path, baton_library** library);
/* Sessions keep what they need of it, so that it may be destroyed before them. */
BATON_API void baton_library_destroy(baton_library* library);

BATON_API size_t baton_library_num_inputs(const baton_library* library);
BATON_API size_t baton_library_num_outputs(const baton_library* library);
/* NULL for an index that is too large. What it points at lives as long as the library. */
BATON_API const baton_tensor_info* baton_library_input(const baton_library* library, size_t index);
BATON_API const baton_tensor_info* baton_library_output(const baton_library* library, size_t index);
/* Index of an input of this name, or -1. */
BATON_API int64_t baton_library_find_input(const baton_library* library, const char* name);
/* The metadata as JSON: target, CPU features, report, what partitioners took. */
BATON_API const char* baton_library_metadata(const baton_library* library);

/* `num_threads` threads work on a run, at most 1024; 0 means TVM_NUM_THREADS, else all cores.
 * The threads are those of the thread that runs the session. */
BATON_API int baton_session_create(const baton_library* library, int num_threads,
                                   baton_session** session);
BATON_API void baton_session_destroy(baton_session* session);

/* Give an input with extents of -1 the shape of its next values, all of its extents. The memory of
 * the input may be another one afterwards. Inputs that share a symbol must agree when they run. */
BATON_API int baton_session_set_input_shape(baton_session* session, size_t index,
                                            const int64_t* shape);
/* Memory of an input, to be filled before a run: 64-byte aligned, zeros at first, and kept by
 * runs. NULL for an index that is too large, and before an open shape is given. */
BATON_API void* baton_session_input(baton_session* session, size_t index);
/* Bytes of an input; 0 for an index that is too large. */
BATON_API size_t baton_session_input_nbytes(const baton_session* session, size_t index);
/* Read an input from the caller's memory, aligned to 64 bytes, without a copy, until it is set to
 * NULL, which brings the session's own memory back. */
BATON_API int baton_session_bind_input(baton_session* session, size_t index, void* data);

BATON_API int baton_session_run(baton_session* session);
BATON_API int baton_session_output(const baton_session* session, size_t index,
                                   baton_tensor* output);

#ifdef __cplusplus
}
#endif

#endif /* BATON_RUNTIME_H_ */
