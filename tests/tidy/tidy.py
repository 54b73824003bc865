#!/usr/bin/env python3
"""Holds the house rules. Prints `file:line: rule: message` for every breach and exits with 1 if there is one.

    tests/tidy/tidy.py [root]        default: the repository that this file stands in

A rule is a generator that yields (line, message). Rules of RULES see one file, rules of TREE_RULES the whole tree.
"""
import ast
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # a test leaves nothing behind

from source import Source  # noqa: E402

MAX_COLUMNS = 120
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 70

FOLDERS = ["virga", "apps", "bench", "tests", "cmake", "docs", "examples", "python", ".ci"]
CODE = (".h", ".cc", ".def", ".proto", ".py", ".cmake", "CMakeLists.txt")
TEXT = CODE + (".md", ".in", ".json", "/dev", "/run")

# Where a rule does not hold, and why. One that is not needed any more is itself a breach.
EXCEPTIONS = {
    ("clocks", "virga/net/ucx/failure.cc"): "a transport ends after its loop has, and must wait for UCX then",
    ("clocks", "virga/lab/crew.h"): "the lab watches processes; it has no loop and stands on base alone",
    ("clocks", "virga/cluster/control.cc"): "callers of the control plane block with a timeout, off the loop",
    ("clocks", "virga/cluster/control_stream.cc"): "gRPC wants a system_clock deadline; its threads end by a wait",
    ("clocks", "apps/virga/train.cc"): "paces the progress bar, which nothing depends on",
    ("costs", "virga/collective/sparse_allreduce/selection.cc"): "a step of sparse allreduces; they state the costs",
}

# --- One file: text ---


def whitespace(source, _):
    """No tabs, nothing behind the end of a line, one newline at the end of a file."""
    for number, line in enumerate(source.lines, 1):
        if "\t" in line:
            yield number, "a tab"
        if line != line.rstrip():
            yield number, "white space at the end of the line"
    if source.text and (not source.text.endswith("\n") or source.text.endswith("\n\n")):
        yield len(source.lines), "a file ends with exactly one newline"


def columns(source, _):
    """Lines that fit on a screen; what can't be broken, an address, a JSON string or a table's row, may be longer."""
    for number, line in enumerate([] if source.path.endswith(".json") else source.lines, 1):
        row = source.path.endswith(".md") and line.startswith("|")
        if len(line) > MAX_COLUMNS and "://" not in line and not row:
            yield number, f"{len(line)} columns, at most {MAX_COLUMNS} are allowed"


def file_length(source, _):
    """One file, one room."""
    if source.path.endswith(CODE) and len(source.lines) > MAX_FILE_LINES:
        yield MAX_FILE_LINES, f"{len(source.lines)} lines, at most {MAX_FILE_LINES} are allowed: split it"


def marks(source, _):
    """What is to be done stands in an issue, not in a comment."""
    for number, line in enumerate(source.lines, 1):
        if re.search(r"\b(TO[D]O|FIX[M]E|XX[X])\b", line):
            yield number, "unfinished work belongs into an issue"


def machine_paths(source, _):
    """Nothing may depend on how one machine is laid out."""
    for number, line in enumerate(source.lines, 1):
        match = re.search(r"(?<![\w./}-])/(?:work|home|root|Users)/[\w.-]*", line)
        if match:
            yield number, f"'{match.group()}' is a path of one machine"


# --- One file: C++ ---


def function_length(source, _):
    """A function is read at one glance."""
    lengths = []
    if source.is_cpp:
        lengths = [(first, last, head) for first, last, head in source.functions()]
    elif source.path.endswith(".py"):
        defs = (node for node in ast.walk(ast.parse(source.text)) if isinstance(node, ast.FunctionDef))
        lengths = [(node.lineno, node.end_lineno, node.name) for node in defs]
    for first, last, head in lengths:
        if last - first + 1 > MAX_FUNCTION_LINES:
            yield first, f"{last - first + 1} lines in '{head[:60]}', at most {MAX_FUNCTION_LINES} are allowed"


def pragma_once(source, _):
    """Every header is included once."""
    if source.is_header and "#pragma once" not in source.lines:
        yield 1, "a header lacks #pragma once"


def arrows(source, tree):
    """A module includes only itself and what its CMakeLists.txt links, directly or through others."""
    if not source.under("virga") or not source.is_cpp:
        return
    module = source.path.split("/")[1]
    for line, what in source.includes():
        match = re.match(r'"([^/"]+)/(?:([^/"]+)/)?', what)
        if match is None and what.startswith('"'):
            yield line, f'{what}: headers are named from the root, "virga/..."'
        if match is None or match.group(1) != "virga":
            continue
        if match.group(2) not in tree.reachable(module):
            yield line, f"virga/{module} does not stand on virga/{match.group(2)}"


HEADERS = [  # (what is included, how it is called, where it may be)
    (r"<(torch|ATen|c10)/", "libtorch", r"(virga/torch|apps|tests/torch|tests/end_to_end|bench)/"),
    (r"<(grpc|grpcpp|google/protobuf)/|\.pb\.h", "gRPC and protobuf", r"(virga|tests)/cluster/[^/]*\.cc$"),
    (r"<(ucp|uct|ucs)/", "UCX", r"virga/net/ucx/|apps/virga/doctor\.cc$"),
    (r"<CLI/", "CLI11", r"apps/"),
    (r"<toml\+\+/", "toml++", r"virga/cluster/cluster_file\.cc$"),
    (r"<(gtest|gmock)/", "GoogleTest", r"tests/"),
]


def libraries(source, _):
    """A library is known in one place."""
    for line, what in source.includes():
        for pattern, name, allowed in HEADERS:
            if re.search(pattern, what) and not re.match(allowed, source.path):
                yield line, f"{what}: {name} is not known here"


def instruction_sets(source, _):
    """An inline function compiled with more instructions could be the copy that the linker keeps for every CPU."""
    if source.under("virga/kernel/avx2", "virga/kernel/avx512"):
        for line, what in source.includes():
            if what not in ("<immintrin.h>", '"virga/kernel/table.h"', '"virga/kernel/reduce_loops.h"'):
                yield line, f"{what}: only <immintrin.h>, virga/kernel/table.h and reduce_loops.h may be included here"


DOORS = [
    (r"\b(steady|system|high_resolution)_clock\b|\b(clock_gettime|gettimeofday)\b|\bstd::time\b", "time"),
    (r"\bsleep_for\b|\bthis_thread::sleep|(?<![:\w])(u|nano)?sleep\s*\(|\.wait_(for|until)\s*\(", "time"),
    (r"\bstd::j?thread\b(?!::)|\bstd::async\b|\bpthread_create\b", "threads"),
    (r"\brandom_device\b|\bmt19937|\bstd::s?rand\b|(?<![:\w])s?rand\s*\(|\bgetrandom\b", "entropy"),
]


def clocks(source, _):
    """virga/runtime is the only door to time, threads and entropy."""
    if not source.under("virga", "apps") or source.under("virga/runtime"):
        return
    for pattern, what in DOORS:
        for match in re.finditer(pattern, source.code):
            yield source.line_of(match.start()), f"'{match.group()}': virga/runtime is the only door to {what}"


def await_in_catch(source, _):
    """A coroutine must not suspend inside a catch block."""
    for match in re.finditer(r"\bcatch\s*\([^)]*\)\s*\{", source.shape):
        end = source.end_of(match.end() - 1)
        for inner in re.finditer(r"\bco_(await|yield)\b", source.shape[match.end():end]):
            yield source.line_of(match.end() + inner.start()), "a suspension inside a catch block"


def await_with_braces(source, _):
    """g++ 12.2 destroys a temporary aggregate inside a co_await expression twice."""
    for match in re.finditer(r"\bco_await\b", source.shape):
        if source.shape[:match.start()].rstrip().endswith("operator"):
            continue
        for offset, char in source.expression_from(match.end()):
            if char == "{":
                yield source.line_of(offset), "a braced temporary inside a co_await expression: name it before"
                break


# virga/collective/OPERATION/OPERATION.cc says what a request of the operation is; the other files are algorithms.
ALGORITHM = r"virga/collective/([^/]+)/(?!\1\.cc)[^/]+\.cc"


def costs(source, _):
    """An algorithm's file opens with what it does and what it costs."""
    if not re.fullmatch(ALGORITHM, source.path):
        return
    block = []
    for line in source.lines:
        if not line.startswith("//"):
            break
        block.append(line.removeprefix("//").strip())
    for word in ["bytes", "memory", "lost peer"]:
        if word not in " ".join(block).lower():
            yield 1, f"the comment that opens an algorithm's file says nothing of: {word}"


def opening_comment(source, _):
    """Every file of a collective opens with a comment."""
    if re.fullmatch(r"virga/collective/[^/]+/[^/]+\.cc", source.path) and not source.text.startswith("// "):
        yield 1, "the file does not open with a comment that says what it does"


RULES = [whitespace, columns, file_length, marks, machine_paths, function_length, pragma_once, arrows, libraries,
         instruction_sets, clocks, await_in_catch, await_with_braces, costs, opening_comment]

# --- The whole tree ---


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.sources = [self.read(path) for path in sorted(self.paths())]
        self.by_path = {source.path: source for source in self.sources}
        self.order = re.findall(r"add_subdirectory\((\w+)\)", self.text_of("virga/CMakeLists.txt"))
        self.links = {module: self.links_of(module) for module in self.order}

    def paths(self):
        for folder in FOLDERS:
            yield from (path for path in (self.root / folder).rglob("*") if path.is_file())
        yield from (path for path in self.root.iterdir() if path.is_file())

    def read(self, path):
        relative = path.relative_to(self.root).as_posix()
        is_text = ("/" + relative).endswith(TEXT)
        return Source(relative, path.read_text(encoding="utf-8") if is_text else "")

    def text_of(self, path):
        return self.by_path[path].text if path in self.by_path else ""

    def links_of(self, module):
        call = re.search(r"virga_module\([^)]*\)", self.text_of(f"virga/{module}/CMakeLists.txt"))
        return re.findall(r"\bvirga_(?!module\b)(\w+)", call.group()) if call else []

    def reachable(self, module):
        found, todo = set(), [module]
        while todo:
            next_module = todo.pop()
            if next_module not in found:
                found.add(next_module)
                todo += self.links.get(next_module, [])
        return found


def modules(tree):
    """Each module links only what stands above it in virga/CMakeLists.txt, which lists them all."""
    for module in tree.order:
        path = f"virga/{module}/CMakeLists.txt"
        above = tree.order[:tree.order.index(module)]
        for link in tree.links[module]:
            if link not in above:
                yield path, 1, f"it links virga_{link}, which does not stand above it in virga/CMakeLists.txt"
    folders = {source.path.split("/")[1] for source in tree.sources if source.under("virga") and source.is_cpp}
    for folder in sorted(folders - set(tree.order)):
        yield "virga/CMakeLists.txt", 1, f"virga/{folder} is not in the list of modules"


def strategies(tree):
    """list.def and the files of virga/strategy say the same."""
    listed = re.findall(r"^VIRGA_STRATEGY\((\w+),", tree.text_of("virga/strategy/list.def"), re.MULTILINE)
    for name in listed:
        if f"make_{name}(" not in tree.text_of(f"virga/strategy/{name}.cc"):
            yield "virga/strategy/list.def", 1, f"there is no virga/strategy/{name}.cc that defines make_{name}"
    for source in tree.sources:
        makers = re.findall(r"^std::unique_ptr<Strategy> make_(\w+)\(const StrategyContext&", source.code, re.MULTILINE)
        for name in makers:
            if source.under("virga/strategy") and name not in listed:
                yield source.path, 1, f"the strategy {name} is not in list.def"


def documents(tree):
    """docs/algorithms.md describes every algorithm, and what documents name or link to is there."""
    described = tree.text_of("docs/algorithms.md")
    for source in tree.sources:
        is_algorithm = re.fullmatch(ALGORITHM, source.path)
        if is_algorithm and source.path not in described:
            yield source.path, 1, "docs/algorithms.md does not describe it"
        for number, line in enumerate(source.lines if source.path.endswith(".md") else [], 1):
            named = re.findall(r"`((?:virga|tests|bench|apps|docs|cmake)/[\w/.-]+\.\w+)`", line)
            linked = re.findall(r"\]\(([^):#]+)(?:#[^)]*)?\)", line)
            # Words in capitals stand for a name: `virga/codec/NAME.h`.
            paths = [tree.root / path for path in named if not re.search(r"[A-Z]{4}[./_]", path)]
            paths += [tree.root / pathlib.Path(source.path).parent / path for path in linked]
            for path in paths:
                if not path.exists():
                    yield source.path, number, f"there is no {path.relative_to(tree.root)}"


TREE_RULES = [modules, strategies, documents]


def breaches(root, exceptions):
    """Every breach as (path, line, rule, message), and every exception that is not needed."""
    tree = Tree(root)
    found = []
    for source in tree.sources:
        for rule in RULES:
            found += [(source.path, line, rule.__name__, message) for line, message in rule(source, tree)]
    for rule in TREE_RULES:
        found += [(path, line, rule.__name__, message) for path, line, message in rule(tree)]
    used = {(rule, path) for path, _, rule, _ in found}
    for rule, path in exceptions:
        if (rule, path) not in used:
            yield path, 1, "exceptions", f"tidy.py excepts it from '{rule}' without need"
    yield from (breach for breach in found if (breach[2], breach[0]) not in exceptions)


def main(arguments):
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parents[2]
    found = sorted(breaches(root, EXCEPTIONS))
    for path, line, rule, message in found:
        print(f"{path}:{line}: {rule}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
