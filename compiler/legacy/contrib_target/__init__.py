"""`tvm.contrib.target`: Relay modules in the formats of others; of these, ONNX is left."""
