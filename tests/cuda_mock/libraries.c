// Poses as libcublasLt.so.13 (-DCUBLASLT) and libcudnn.so.9: keeps descriptions, refuses what does
// not fit together, and hands each call as numbers and pointers to whom `mock_on_call` names.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t Number;
static void (*on_call)(const Number* numbers, void* const* pointers);
void mock_on_call(void* callback) { on_call = callback; }
static const char* text(int status) { return status ? "mocked error" : "success"; }
static int handle;

#ifdef CUBLASLT

enum { INVALID = 7, UNSUPPORTED = 15, MAGIC = 0x5ca1ab1e };
struct Matmul { int32_t compute, scale, trans[2]; uint32_t epilogue; void* bias; int32_t bias_type; };
struct Layout { int32_t type; uint64_t rows, columns; int64_t ld; int32_t batch; int64_t stride; };
struct Preference { uint64_t workspace; uint32_t alignment[4]; };
struct Heuristic { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; };

const char* cublasLtGetStatusString(int status) { return text(status); }
int cublasLtCreate(void** made) { return *made = &handle, 0; }
int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
  struct Matmul* matmul = calloc(1, sizeof *matmul);
  matmul->compute = compute, matmul->scale = scale, matmul->epilogue = 1;
  return *made = matmul, 0;
}
static int set(void* field, size_t field_size, const void* value, size_t size) {
  if (!value || size != field_size) return INVALID;
  return memcpy(field, value, size), 0;
}
#define SET(field) return set(&(field), sizeof(field), value, size)
int cublasLtMatmulDescSetAttribute(struct Matmul* matmul, int attribute, const void* value, size_t size) {
  switch (attribute) {
    case 3: case 4: SET(matmul->trans[attribute - 3]);
    case 7: SET(matmul->epilogue);
    case 8: SET(matmul->bias);
    case 26: SET(matmul->bias_type);
  }
  return INVALID;
}
int cublasLtMatrixLayoutCreate(void** made, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  struct Layout* layout = malloc(sizeof *layout);
  if (ld < (int64_t)rows) return INVALID;
  *layout = (struct Layout){type, rows, columns, ld, 1, 0};
  return *made = layout, 0;
}
int cublasLtMatrixLayoutSetAttribute(struct Layout* layout, int attribute, const void* value, size_t size) {
  switch (attribute) {
    case 5: SET(layout->batch);
    case 6: SET(layout->stride);
  }
  return INVALID;
}
int cublasLtMatmulPreferenceCreate(void** made) { return *made = calloc(1, sizeof(struct Preference)), 0; }
int cublasLtMatmulPreferenceDestroy(void* preference) { return free(preference), 0; }
int cublasLtMatmulPreferenceSetAttribute(struct Preference* preference, int attribute, const void* value, size_t size) {
  switch (attribute) {
    case 1: SET(preference->workspace);
    case 5: case 6: case 7: case 8: SET(preference->alignment[attribute - 5]);
  }
  return INVALID;
}
// Whether the matrices fit together; k goes to *k.
static int refused(const struct Matmul* matmul, const struct Layout* a, const struct Layout* b, const struct Layout* d, uint64_t* k) {
  uint64_t m = matmul->trans[0] ? a->columns : a->rows, n = matmul->trans[1] ? b->rows : b->columns;
  *k = matmul->trans[0] ? a->rows : a->columns;
  if (*k != (matmul->trans[1] ? b->columns : b->rows) || m != d->rows || n != d->columns) return INVALID;
  if (a->batch != d->batch || b->batch != d->batch || a->type != b->type) return INVALID;
  if (a->type == 3)  // bytes
    return matmul->trans[0] && !matmul->trans[1] && m % 4 == 0 && *k % 4 == 0 && d->type == 10 &&
                   matmul->compute == 72 && matmul->scale == 10 && matmul->epilogue == 1
               ? 0
               : UNSUPPORTED;
  return d->type == a->type && matmul->scale == 0 ? 0 : UNSUPPORTED;
}
int cublasLtMatmulAlgoGetHeuristic(void* of, struct Matmul* matmul, struct Layout* a, struct Layout* b, struct Layout* c,
                                   struct Layout* d, struct Preference* preference, int wanted,
                                   struct Heuristic* found, int* count) {
  uint64_t k;
  int status = refused(matmul, a, b, d, &k);
  if (status || of != &handle || wanted < 1) return status ? status : INVALID;
  memset(found, 0, sizeof *found);
  found->algorithm[0] = MAGIC, found->workspace = preference->workspace / 2;
  return *count = 1, 0;
}
int cublasLtMatmul(void* of, struct Matmul* matmul, const void* alpha, void* a, struct Layout* la, void* b,
                   struct Layout* lb, const void* beta, void* c, struct Layout* lc, void* d, struct Layout* ld,
                   const uint64_t* algorithm, void* workspace, size_t size, void* stream) {
  uint64_t k;
  int status = refused(matmul, la, lb, ld, &k);
  if (status || algorithm[0] != MAGIC || of != &handle || c != d || lc != ld) return status ? status : INVALID;
  int is_one = matmul->scale == 10 ? *(int*)alpha == 1 && *(int*)beta == 0 : *(float*)alpha == 1 && *(float*)beta == 0;
  if (!is_one || ((uintptr_t)workspace | size) % 256) return INVALID;
  Number numbers[] = {matmul->trans[0], matmul->trans[1], matmul->epilogue, matmul->compute, la->type, ld->type,
                      ld->rows, ld->columns, k, la->ld, lb->ld, ld->ld, ld->batch, la->stride, lb->stride,
                      ld->stride, matmul->bias_type, size};
  void* pointers[] = {a, b, d, matmul->bias, workspace, stream};
  return on_call ? on_call(numbers, pointers), 0 : 1;
}

#else

enum { BAD_PARAM = 2000, NOT_SUPPORTED = 3000 };
struct Tensor { int format, type, extents[4]; };
struct Convolution { int padding[2], strides[2], dilation[2], groups, math; };
struct Performance { int algorithm, status; float time; size_t memory; int determinism, math, reserved[3]; };
static void* current_stream;

const char* cudnnGetErrorString(int status) { return text(status); }
int cudnnCreate(void** made) { return *made = &handle, 0; }
int cudnnSetStream(void* of, void* stream) { return current_stream = stream, of != &handle; }
#define CREATES(name, type) \
  int name(void** made) { return *made = calloc(1, sizeof(type)), 0; }
CREATES(cudnnCreateTensorDescriptor, struct Tensor)
CREATES(cudnnCreateFilterDescriptor, struct Tensor)
CREATES(cudnnCreateConvolutionDescriptor, struct Convolution)
CREATES(cudnnCreateActivationDescriptor, int)
int cudnnSetTensor4dDescriptor(struct Tensor* tensor, int format, int type, int n, int c, int h, int w) {
  return *tensor = (struct Tensor){format, type, {n, c, h, w}}, 0;
}
int cudnnSetFilter4dDescriptor(struct Tensor* tensor, int type, int format, int k, int c, int h, int w) {
  return *tensor = (struct Tensor){format, type, {k, c, h, w}}, 0;
}
int cudnnSetConvolution2dDescriptor(struct Convolution* convolution, int ph, int pw, int u, int v, int dh, int dw,
                                    int mode, int type) {
  *convolution = (struct Convolution){{ph, pw}, {u, v}, {dh, dw}, 1, 0};
  return mode == 1 && type == 0 ? 0 : BAD_PARAM;
}
int cudnnSetConvolutionGroupCount(struct Convolution* convolution, int groups) { return convolution->groups = groups, 0; }
int cudnnSetConvolutionMathType(struct Convolution* convolution, int math) { return convolution->math = math, 0; }
int cudnnSetActivationDescriptor(int* activation, int mode, int nan, double ceiling) {
  return *activation = mode, mode == 1 || mode == 5 ? 0 : NOT_SUPPORTED;
}
static int refused(const struct Tensor* x, const struct Tensor* w, const struct Convolution* convolution, const struct Tensor* y) {
  if (x->type != w->type || x->type != y->type || x->format != w->format || x->format != y->format) return BAD_PARAM;
  if (x->extents[1] != w->extents[1] * convolution->groups || y->extents[1] != w->extents[0]) return BAD_PARAM;
  for (int i = 0; i < 2; ++i) {
    int window = (w->extents[2 + i] - 1) * convolution->dilation[i] + 1;
    if (y->extents[2 + i] != (x->extents[2 + i] + 2 * convolution->padding[i] - window) / convolution->strides[i] + 1)
      return BAD_PARAM;
  }
  return y->extents[0] != x->extents[0] ? BAD_PARAM : 0;
}
// First one that does not run, then one that needs too much, then Winograd, then the one for biases.
int cudnnGetConvolutionForwardAlgorithm_v7(void* of, struct Tensor* x, struct Tensor* w, struct Convolution* convolution,
                                           struct Tensor* y, int wanted, int* count, struct Performance* found) {
  int status = refused(x, w, convolution, y);
  if (status || of != &handle || wanted < 4) return status ? status : BAD_PARAM;
  found[0] = (struct Performance){5, NOT_SUPPORTED, -1, 0, 1, convolution->math};
  found[1] = (struct Performance){4, 0, 1, (size_t)1 << 40, 1, convolution->math};
  found[2] = (struct Performance){6, 0, 2, 4096, 1, convolution->math};
  found[3] = (struct Performance){1, 0, 3, 1024, 1, convolution->math};
  return *count = 4, 0;
}
static int call(struct Tensor* x, void* x_data, struct Tensor* w, void* w_data, struct Convolution* convolution, int algorithm,
                void* workspace, size_t size, void* bias, int activation, struct Tensor* y, void* y_data) {
  int status = refused(x, w, convolution, y);
  if (status || size < 4096) return status ? status : BAD_PARAM;
  Number numbers[] = {x->format, x->type, x->extents[0], x->extents[1], x->extents[2], x->extents[3], w->extents[0],
                      w->extents[1], w->extents[2], w->extents[3], y->extents[2], y->extents[3], convolution->padding[0],
                      convolution->padding[1], convolution->strides[0], convolution->strides[1], convolution->dilation[0],
                      convolution->dilation[1], convolution->groups, convolution->math, activation, algorithm, size};
  void* pointers[] = {x_data, w_data, y_data, bias, workspace, current_stream};
  return on_call ? on_call(numbers, pointers), 0 : 1;
}
int cudnnConvolutionForward(void* of, const float* alpha, struct Tensor* x, void* x_data, struct Tensor* w, void* w_data,
                            struct Convolution* convolution, int algorithm, void* workspace, size_t size,
                            const float* beta, struct Tensor* y, void* y_data) {
  if (*alpha != 1 || *beta != 0) return BAD_PARAM;
  return call(x, x_data, w, w_data, convolution, algorithm, workspace, size, NULL, 5, y, y_data);
}
int cudnnConvolutionBiasActivationForward(void* of, const float* alpha, struct Tensor* x, void* x_data, struct Tensor* w,
                                          void* w_data, struct Convolution* convolution, int algorithm, void* workspace,
                                          size_t size, const float* alpha2, struct Tensor* z, void* z_data,
                                          struct Tensor* bias, void* bias_data, int* activation, struct Tensor* y,
                                          void* y_data) {
  if (*alpha != 1 || *alpha2 != 0 || bias->extents[1] != y->extents[1]) return BAD_PARAM;
  if (*activation == 5 && algorithm != 1) return NOT_SUPPORTED;
  return call(x, x_data, w, w_data, convolution, algorithm, workspace, size, bias_data, *activation, y, y_data);
}

#endif
