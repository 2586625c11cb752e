"""`relay.op.contrib`: what external compilers register of operators."""
