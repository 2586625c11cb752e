/*!
 * \file lib_api.h
 * \brief mxnet/lib_api.h for sources of MXNet 1.7, which name its classes without a namespace.
 */
#ifndef MXNET_1_7_LIB_API_H_
#define MXNET_1_7_LIB_API_H_

#include <mxnet/lib_api.h>

using namespace mxnet::ext;  // NOLINT

#endif  // MXNET_1_7_LIB_API_H_
