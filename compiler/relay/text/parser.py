"""Parser of Relay text, format 0.0.5: tokens to `syntax` nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...errors import RelaySyntaxError, SavedModuleError
from . import syntax
from .lexer import split_metadata, tokenize
from .metadata import AttributesObject, Metadata
from .token_reader import SPECIAL, SUFFIX, TokenReader, special_value
from .traversal import free_variables

VERSION = "0.0.5"

_INFIX = {
    "*": (12, "multiply"),
    "/": (12, "divide"),
    "+": (10, "add"),
    "-": (10, "subtract"),
    "<": (8, "less"),
    "<=": (8, "less_equal"),
    ">": (8, "greater"),
    ">=": (8, "greater_equal"),
    "==": (7, "equal"),
    "!=": (7, "not_equal"),
}


def parse_module(
    text: str,
    source: str = "from_string",
    types: Mapping[str, syntax.DataType] | None = None,
    meta_table: Mapping[str, Any] | None = None,
) -> syntax.Module:
    """Parse a module: header `#[version = "0.0.5"]`, definitions, metadata section.

    `source` prefixes positions in errors. `types` are predefined. `meta_table` has the objects for
    `meta[...]` if the text has no metadata section. Raises RelaySyntaxError: the text is malformed;
    the error contains line, column and the line itself.
    """
    parser = _Parser(text, source, types, meta_table)
    with parser.reporting():
        parser.header(required=True)
        return parser.module()


def parse_expression(
    text: str, source: str = "from_string", meta_table: Mapping[str, Any] | None = None
) -> syntax.Block:
    """Parse one expression and the bindings before it; the header is optional."""
    parser = _Parser(text, source, None, meta_table)
    parser.operators_are_values = True
    with parser.reporting():
        parser.header(required=False)
        with parser.scope():
            block = parser.block_contents()
        parser.expect_end()
        return block


class _Parser(TokenReader):
    def __init__(
        self,
        text: str,
        source: str,
        types: Mapping[str, syntax.DataType] | None,
        meta_table: Mapping[str, Any] | None,
    ) -> None:
        program, section = split_metadata(text)
        super().__init__(tokenize(program, source))
        try:
            self.metadata = Metadata(section, source, meta_table)
        except SavedModuleError as error:
            raise RelaySyntaxError(str(error)) from None
        self.found = syntax.Module(source=source, text=program)
        self.found.types.update(types or {})
        self.constructors = {
            name for each in self.found.types.values() for name in each.constructors
        }
        self.operators_are_values = False
        self.scopes: list[dict[str, syntax.Var]] = []
        self.graph: dict[str, syntax.Var] = {}

    # Scopes.

    @contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append({})
        yield
        self.scopes.pop()

    def declare(self, name: str, kind: syntax.Type | None) -> syntax.Var:
        var = syntax.Var(name, kind)
        self.scopes[-1]["%" + name] = var
        return var

    def resolve(self, key: str, at: int) -> syntax.Var:
        for scope in reversed(self.scopes):
            if key in scope:
                return scope[key]
        if key in self.graph:
            return self.graph[key]
        raise self.error(f"the variable {key if key[0] == '%' else '%' + key} is not bound", at)

    # Modules.

    def header(self, required: bool) -> None:
        if self.kinds[self.at] != "header":
            if required:
                raise self.error(f'Relay text begins with `#[version = "{VERSION}"]`')
            return
        version = self.values[self.at].split('"')[1]
        if version != VERSION:
            raise self.error(f"this reads Relay text of version {VERSION}, not {version}")
        self.at += 1

    def module(self) -> syntax.Module:
        while self.kinds[self.at] != "end":
            start = self.at
            if self.accept_word("def"):
                name = self.take("global", "the name of a function, `@name`")
                if name in self.found.functions:
                    raise self.error(f"the function @{name} is defined twice", start + 1)
                self.found.functions[name] = self.function()
            elif self.accept_word("type"):
                self.data_type(opaque=False)
            elif self.accept_word("extern"):
                if not self.accept_word("type"):
                    raise self.error("expected `type` after `extern`")
                self.data_type(opaque=True)
            elif self.values[self.at] in ("fn", "free_var") and not self.found.functions:
                self.found.functions["main"] = self.only_function()
            else:
                raise self.error(f"expected `def` or `type`, found {self.shown()}")
        return self.found

    def only_function(self) -> syntax.Function:
        """Parse a single expression as `main`; the free variables are its parameters."""
        with self.scope():
            block = self.block_contents()
        self.expect_end()
        if isinstance(block.result, syntax.Function) and not block.bindings:
            return block.result
        return syntax.Function(free_variables(block), block, None, (), {})

    def data_type(self, opaque: bool) -> None:
        name = self.take("word", "the name of a type")
        if name in self.found.types:
            raise self.error(f"the type {name} is defined twice", self.at - 1)
        made = syntax.DataType(name, self.type_params(), {})
        self.found.types[name] = made
        if opaque:
            self.accept(";")
            return
        self.expect("{", "before the constructors")

        def constructor() -> None:
            name = self.take("word", "the name of a constructor")
            if name in self.constructors:
                raise self.error(f"the constructor {name} is defined twice", self.at - 1)
            where = "between the fields of a constructor"
            fields = self.listed(self.type, ")", where) if self.accept("(") else []
            made.constructors[name] = tuple(fields)
            self.constructors.add(name)

        self.listed(constructor, "}", "between constructors")

    # Functions and blocks.

    def function(self) -> syntax.Function:
        """Parse what follows `fn` or `def @name`: type variables, parameters, types, body."""
        with self.nested(), self.scope():
            type_params = self.type_params()
            self.expect("(", "before the parameters")
            parameters: list[syntax.Var] = []
            attributes: dict[str, Any] = {}

            def parameter() -> None:
                if self.kinds[self.at] != "local":
                    key = self.take("word", "a parameter `%name` or an attribute `key=value`")
                    self.expect("=", f"after the attribute {key}")
                    self.attribute(key, attributes)
                    return
                name = self.take("local", "a parameter")
                if self.accept("{"):  # virtual device: ignored
                    while not self.accept("}"):
                        if self.kinds[self.at] == "end":
                            raise self.error("this `{` is not closed")
                        self.at += 1
                parameters.append(self.declare(name, self.optional_type()))

            self.listed(parameter, ")", "or `)` after a parameter")
            result = self.optional_type("->")
            body = self.braces()
        return syntax.Function(parameters, body, result, type_params, attributes)

    def braces(self) -> syntax.Block:
        self.expect("{", "before a body")
        with self.scope():
            block = self.block_contents()
        self.expect("}", "after a body")
        return block

    def block_contents(self) -> syntax.Block:
        """Parse bindings and the result iteratively, as files can have fifty thousand lines."""
        bindings: list[tuple[syntax.Var, syntax.Expr]] = []
        kinds, values = self.kinds, self.values
        while True:
            kind = kinds[self.at]
            if kind == "graph" and values[self.at + 1] == "=" and kinds[self.at + 1] == "mark":
                name = values[self.at]
                self.at += 2
                value = self.expression()
                var = syntax.Var(name[1:], None, int(name[1:]), value)
                self.scopes[-1][name] = self.graph[name] = var
                bindings.append((var, value))
                self.expect(";", "after a binding")
            elif kind == "word" and values[self.at] == "let":
                self.at += 1
                bindings.append(self.let())
            elif kind == "word" and values[self.at] == "free_var":
                self.at += 1
                name = self.take("local", "the name of a variable")
                self.declare(name, self.optional_type())
                self.accept(";")
            else:
                value = self.expression()
                if not self.accept(";"):
                    return syntax.Block(bindings, value)
                bindings.append((syntax.Var("_"), value))

    def let(self) -> tuple[syntax.Var, syntax.Expr]:
        name = self.take("local", "the variable of a let")
        kind = self.optional_type()
        self.expect("=", "after the variable of a let")
        var = syntax.Var(name, kind)
        if self.kinds[self.at] == "word" and self.values[self.at] == "fn":
            self.scopes[-1]["%" + name] = var  # a function may be recursive
        value = self.expression()
        self.scopes[-1]["%" + name] = var
        self.expect(";", "after a binding")
        return var, value

    # Expressions.

    def expression(self, least: int = 0) -> syntax.Expr:
        left = self.postfix()
        while self.kinds[self.at] == "mark":
            strength, name = _INFIX.get(self.values[self.at], (0, ""))
            if strength <= least:
                break
            position = self.tokens.positions[self.at]
            self.at += 1
            with self.nested():
                right = self.expression(strength)
            left = syntax.Call(syntax.Op(name), [left, right], {}, position)
        return left

    def postfix(self) -> syntax.Expr:
        start = self.at
        made = self.atom()
        while self.kinds[self.at] == "mark":
            if self.is_mark("("):
                arguments, attributes = self.arguments()
                made = syntax.Call(made, arguments, attributes, self.tokens.positions[start])
            elif self.accept("."):
                for index in self.take("number", "the number of a field").split("."):
                    if not index.isdecimal():
                        raise self.error("a field is a whole number", self.at - 1)
                    made = syntax.Field(made, int(index))
            else:
                break
        if (
            isinstance(made, syntax.Op)
            and not self.operators_are_values
            and made.name not in self.constructors
        ):
            raise self.error(f"the operator {made.name} is not called", start)
        return made

    def atom(self) -> syntax.Expr:
        at, kind, value = self.at, self.kinds[self.at], self.values[self.at]
        self.at += 1
        if kind == "graph":
            return self.resolve(value, at)
        if kind == "local":
            return self.resolve("%" + value, at)
        if kind == "global":
            return syntax.Global(value)
        if kind == "number":
            return syntax.Constant(self.scalar(value, at))
        if kind == "meta":
            return self.meta_expression(at)
        if kind == "word":
            return self.word(value, at)
        if kind == "mark" and value == "(":
            return self.parenthesis()
        if kind == "mark" and value == "-":
            with self.nested():
                inner = self.postfix()
            if isinstance(inner, syntax.Constant) and isinstance(inner.value, np.number):
                return syntax.Constant(-inner.value)
            return syntax.Call(syntax.Op("negative"), [inner], {}, self.tokens.positions[at])
        self.at = at
        raise self.error(f"expected an expression, found {self.shown()}")

    def word(self, value: str, at: int) -> syntax.Expr:
        if value in self.constructors:
            return syntax.Constructor(value)
        if value in ("True", "False"):
            return syntax.Constant(np.bool_(value == "True"))
        if value == "fn":
            return self.function()
        if value == "if":
            return self.conditional()
        if value == "match":
            return self.match()
        if value in ("ref", "ref_read", "ref_write") and self.is_mark("("):
            return self.reference(value)
        special = SPECIAL.match(value)
        if special is not None and not self.is_mark("("):
            return syntax.Constant(special_value(special))
        if value in ("let", "def", "else", "type", "extern", "free_var"):
            raise self.error(f"`{value}` can't stand here", at)
        return syntax.Op(value)

    def parenthesis(self) -> syntax.Expr:
        with self.nested():
            fields: list[syntax.Expr] = []
            if self.kinds[self.at] == "word" and self.values[self.at] == "let":
                with self.scope():
                    block = self.block_contents()
                self.expect(")", "after the value of a let")
                return block
            while not self.accept(")"):
                fields.append(self.expression())
                if self.accept(")"):
                    return fields[0] if len(fields) == 1 else syntax.Tuple(fields)
                self.expect(",", "or `)` after a field")
            return syntax.Tuple(fields)

    def arguments(self) -> tuple[list[syntax.Expr], dict[str, Any]]:
        self.at += 1  # "("
        operands: list[syntax.Expr] = []
        attributes: dict[str, Any] = {}
        kinds, values = self.kinds, self.values
        self.deeper()
        while not self.accept(")"):
            if kinds[self.at] == "word" and values[self.at + 1] == "=":
                key = values[self.at]
                self.at += 2
                self.attribute(key, attributes)
            elif kinds[self.at] == "meta" and "relay.attrs." in values[self.at]:
                attributes.update(self.meta_attributes())
            else:
                operands.append(self.expression())
            if not self.accept(","):
                self.expect(")", "or `,` after an argument")
                break
        self.depth -= 1
        attributes.pop("attrs_type_key", None)
        return operands, attributes

    def conditional(self) -> syntax.Expr:
        with self.nested():
            self.expect("(", "after `if`")
            condition = self.expression()
            self.expect(")", "after the condition")
            then = self.braces()
            if not self.accept_word("else"):
                raise self.error(f"expected `else`, found {self.shown()}")
            return syntax.If(condition, then, self.braces())

    def match(self) -> syntax.Expr:
        with self.nested():
            complete = not self.accept("?")
            value = self.postfix()
            self.expect("{", "before the clauses")
            clauses = self.listed(self.clause, "}", "between clauses")
            return syntax.Match(value, clauses, complete)

    def clause(self) -> syntax.Clause:
        with self.scope():
            pattern = self.pattern()
            self.expect("=>", "after a pattern")
            is_block = self.is_mark("{")
            body = self.braces() if is_block else syntax.Block([], self.expression())
        return syntax.Clause(pattern, body)

    def pattern(self) -> syntax.Pattern:
        with self.nested():
            if self.accept_word("_"):
                return syntax.AnyPattern()
            if self.kinds[self.at] == "local":
                name = self.take("local", "a variable")
                return syntax.VarPattern(self.declare(name, self.optional_type()))
            if self.is_mark("("):
                return syntax.TuplePattern(self.patterns())
            name = self.take("word", "a pattern")
            if name not in self.constructors:
                raise self.error(f"there is no constructor {name}", self.at - 1)
            fields = self.patterns() if self.is_mark("(") else []
            return syntax.ConstructorPattern(name, fields)

    def patterns(self) -> list[syntax.Pattern]:
        self.at += 1  # "("
        return self.listed(self.pattern, ")", "between patterns")

    def reference(self, kind: str) -> syntax.Expr:
        start = self.at
        operands, attributes = self.arguments()
        wanted = 2 if kind == "ref_write" else 1
        if len(operands) != wanted or attributes:
            raise self.error(f"{kind} takes {wanted} operands, got {len(operands)}", start)
        if kind == "ref":
            return syntax.RefCreate(operands[0])
        if kind == "ref_read":
            return syntax.RefRead(operands[0])
        return syntax.RefWrite(operands[0], operands[1])

    # Metadata.

    def meta_reference(self, at: int) -> Any:
        key, number = re.findall(r"\[\s*([\w.]+)\s*\]", self.values[at])
        if len(number) > 9:
            raise self.error(f"there is no {self.values[at]}", at)
        try:
            return self.metadata.get(key, int(number))
        except SavedModuleError as error:
            raise self.error(str(error), at) from None

    def meta_expression(self, at: int) -> syntax.Expr:
        value = self.meta_reference(at)
        if not isinstance(value, syntax.Constant):
            raise self.error(f"{self.values[at]} is not a constant", at)
        return value

    def meta_attributes(self) -> dict[str, Any]:
        value = self.meta_reference(self.at)
        if not isinstance(value, AttributesObject):
            raise self.error(f"{self.values[self.at]} holds no attributes")
        self.at += 1
        return value

    # Attributes.

    def attribute(self, key: str, attributes: dict[str, Any]) -> None:
        """Parse the value of an attribute; a variable repeats an operand and is dropped."""
        value = self.attribute_value()
        if not isinstance(value, syntax.Var):
            attributes[key] = value

    def attribute_value(self) -> Any:
        """Parse an attribute value as plain Python, or as a constant expression."""
        at, kind, value = self.at, self.kinds[self.at], self.values[self.at]
        self.at += 1
        if kind == "number":
            return self.attribute_number(value, at)
        if kind == "string":
            return value
        if kind == "ints":
            return [int(item) for item in value[1:-1].split(",")]
        if kind == "word":
            if value in ("True", "False"):
                return value == "True"
            if value == "None":
                return None
            special = SPECIAL.match(value)
            return value if special is None else float(special[1])
        if kind == "meta":
            found = self.meta_reference(at)
            return found.value if isinstance(found, syntax.Constant) else found
        if kind == "tensor":
            raise self.error("a type can't be the value of an attribute", at)
        if kind in ("graph", "local"):
            return self.resolve(value if kind == "graph" else "%" + value, at)
        if kind == "mark" and value == "-" and self.kinds[self.at] == "word":
            special = SPECIAL.match(self.values[self.at])
            if special is not None:
                self.at += 1
                return -float(special[1])
        if kind == "mark" and value in "[(":
            return self.attribute_list("]" if value == "[" else ")")
        self.at = at
        raise self.error(f"expected the value of an attribute, found {self.shown()}")

    def attribute_list(self, closer: str) -> list[Any]:
        with self.nested():
            return self.listed(self.attribute_value, closer, f"or `{closer}` in a list")

    def attribute_number(self, literal: str, at: int) -> int | float:
        value = self.scalar(literal, at)
        if np.issubdtype(value.dtype, np.integer):
            return int(value)
        # The text has more digits than float32 can represent: 0.1f is parsed as the double 0.1.
        return float(SUFFIX.sub("", literal))
