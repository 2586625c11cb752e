"""MXNet's files and graphs: nodes, operators, attributes, parameters; numpy is all they need."""
