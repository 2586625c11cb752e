#include <tvm/runtime/registry.h>  // all of the interface
