/*!
 * \file mxnet/lib_api_names.h
 * \brief The names of mxnet/lib_api.h that MXNet had outside of a namespace until 1.7.
 */
#ifndef MXNET_LIB_API_NAMES_H_
#define MXNET_LIB_API_NAMES_H_

using mxnet::ext::MXReturnValue;
using mxnet::ext::MX_FAIL;
using mxnet::ext::MX_SUCCESS;
using mxnet::ext::MXDType;
using mxnet::ext::kFloat32;
using mxnet::ext::kFloat64;
using mxnet::ext::kFloat16;
using mxnet::ext::kUint8;
using mxnet::ext::kInt32;
using mxnet::ext::kInt8;
using mxnet::ext::kInt64;
using mxnet::ext::kUNSET;
using mxnet::ext::MXStorageType;
using mxnet::ext::kDefaultStorage;
using mxnet::ext::kRowSparseStorage;
using mxnet::ext::kCSRStorage;
using mxnet::ext::MXContext;
using mxnet::ext::MXSparse;
using mxnet::ext::MXTensor;
using mxnet::ext::mx_stream_t;
using mxnet::ext::mx_cpu_rand_t;
using mxnet::ext::mx_gpu_rand_t;
using mxnet::ext::OpResource;
using mxnet::ext::PassResource;
using mxnet::ext::JsonType;
using mxnet::ext::ERR;
using mxnet::ext::STR;
using mxnet::ext::NUM;
using mxnet::ext::LIST;
using mxnet::ext::MAP;
using mxnet::ext::JsonVal;
using mxnet::ext::JsonParser;
using mxnet::ext::CustomOpSelector;
using mxnet::ext::CustomStatefulOp;
using mxnet::ext::CustomOp;
using mxnet::ext::CustomPass;
using mxnet::ext::CustomPartitioner;
using mxnet::ext::Registry;

#endif  // MXNET_LIB_API_NAMES_H_
