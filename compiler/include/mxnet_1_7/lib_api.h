/*!
 * \file lib_api.h
 * \brief mxnet/lib_api.h for sources of MXNet 1.6 and 1.7, which name its classes without a namespace.
 */
#ifndef MXNET_1_7_LIB_API_H_
#define MXNET_1_7_LIB_API_H_

#include <mxnet/lib_api.h>
#include <mxnet/lib_api_names.h>

#endif  // MXNET_1_7_LIB_API_H_
