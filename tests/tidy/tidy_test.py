#!/usr/bin/env python3
"""Shows every rule of tidy.py what it is there to find, and what it must let pass."""
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import tidy  # noqa: E402

MODULES = {
    "virga/CMakeLists.txt": "add_subdirectory(base)\nadd_subdirectory(net)\nadd_subdirectory(plan)\n",
    "virga/base/CMakeLists.txt": "virga_module(base DEPS fmt::fmt)\n",
    "virga/net/CMakeLists.txt": "virga_module(net DEPS virga_base ucx::ucp)\n",
    "virga/plan/CMakeLists.txt": "virga_module(plan DEPS virga_net)\n",
}
COSTS = "// Sends 4 bytes.\n// Memory none. A lost\n// peer: fails.\n"

# rule: (files that break it once, files that keep it)
CASES = {
    "whitespace": ({"docs/a.md": "one \n"}, {"docs/a.md": "one\n\ntwo\n"}),
    "columns": ({"docs/a.md": "x" * 121 + "\n"}, {"docs/a.md": "x" * 120 + "\n" + "see https://" + "x" * 120 + "\n|" + "x" * 120 + "\n"}),
    "file_length": ({"bench/a.cc": "\n".join("int x;" for _ in range(701)) + "\n"},
                    {"bench/a.cc": "\n".join("int x;" for _ in range(700)) + "\n"}),
    "marks": ({"bench/a.cc": "// TO" "DO: later\n"}, {"bench/a.cc": "int TO" "DOS;\n"}),
    "machine_paths": ({"bench/a.cc": 'open("/ho' 'me/me/x");\n'}, {"bench/a.cc": 'open("/proc/{}/ro' 'ot");\n'}),
    "function_length": ({"bench/a.cc": "void f() {\n" + "  g();\n" * 69 + "}\n"},
                        {"bench/a.cc": "struct A {\nvoid f() {\n" + "  g();\n" * 68 + "}\n" + "int x;\n" * 9 + "}\n"}),
    "pragma_once": ({"bench/a.h": "// #pragma once\n"}, {"bench/a.h": "// A header.\n#pragma once\n"}),
    "arrows": ({"virga/net/a.cc": '#include "virga/plan/b.h"\n'},
               {"virga/plan/a.cc": '#include "virga/base/b.h"\n#include "virga/net/b.h"\n#include "virga/plan/b.h"\n'}),
    "libraries": ({"virga/net/a.cc": "#include <torch/types.h>\n"},
                  {"virga/net/ucx/a.cc": "#include <ucp/api/ucp.h>\n", "tests/net/a.cc": "#include <gtest/gtest.h>\n"}),
    "instruction_sets": ({"virga/kernel/avx2/a.cc": "#include <vector>\n"},
                         {"virga/kernel/avx2/a.cc": "#include <immintrin.h>\n",
                          "virga/kernel/a.cc": "#include <vector>\n"}),
    "clocks": ({"virga/net/a.cc": "auto t = std::chrono::steady_clock::now();\n"},
               {"virga/net/a.cc": "// steady_clock\nint n = std::thread::hardware_concurrency();\n",
                "virga/runtime/a.cc": "std::thread t;\n", "virga/CMakeLists.txt": "add_subdirectory(net)\n"
                "add_subdirectory(runtime)\n"}),
    "await_in_catch": ({"bench/a.cc": "void f() { try { g(); } catch (const E& e) { if (x) { co_await h(); } } }\n"},
                       {"bench/a.cc": "void f() { try { co_await g(); } catch (...) { h(); } co_await h(); }\n"}),
    "await_with_braces": ({"bench/a.cc": "void f() { co_await g(h(1), {}); }\n"},
                          {"bench/a.cc": "void f() { if (co_await g(x[1], [&x](int) -> T { h({}); })) { i({}); } }\n"}),
    "costs": ({"virga/collective/a/b.cc": "// Sends 4 bytes. A lost peer fails.\nint memory;\n"},
              {"virga/collective/a/b.cc": COSTS}),
    "opening_comment": ({"virga/collective/a/b.cc": "\n" + COSTS}, {"virga/collective/a/b.cc": COSTS}),
    "modules": ({"virga/base/CMakeLists.txt": "virga_module(base DEPS virga_net)\n"}, {}),
    "strategies": ({"virga/strategy/list.def": "VIRGA_STRATEGY(ring, \"a\")\n"},
                   {"virga/strategy/list.def": "VIRGA_STRATEGY(ring, \"a\")\n",
                    "virga/strategy/ring.cc": "std::unique_ptr<Strategy> make_ring(const StrategyContext& c) {}\n"}),
    "documents": ({"docs/a.md": "See `bench/none.py`.\n"},
                  {"docs/a.md": "`bench/some.py` `virga/codec/NAME.h` [b](../bench/some.py) [c](#d) [e](https://f)\n",
                   "bench/some.py": ""}),
}

# More that rules must find.
BAD = [
    ("whitespace", {"docs/a.md": "a\tb\n"}),
    ("whitespace", {"docs/a.md": "a"}),
    ("function_length", {"bench/a.py": "def f():\n" + "    g()\n" * 70}),
    ("function_length", {"bench/a.cc": "#include <a>\nclass A {\n  struct B f() const {\n" + "\n" * 70 + "}\n};\n"}),
    ("arrows", {"virga/net/a.cc": '#include "a.h"\n'}),
    ("libraries", {"virga/cluster/a.h": '#pragma once\n#include "virga/cluster/control.pb.h"\n'}),
    ("clocks", {"apps/a.cc": "std::thread t([] {});\n"}),
    ("clocks", {"virga/net/a.cc": "f(3'600'000); std::random_device d; // 'x'\n"}),
    ("await_with_braces", {"bench/a.cc": "void f() { co_await g(Options{.x = 1}); }\n"}),
    ("await_with_braces", {"bench/a.cc": "void f() { auto x = co_await g(Buffer{a, b}); }\n"}),
    ("await_in_catch", {"bench/a.cc": "void f() { try {} catch (const E&) { log(\"}\"); co_await g(); } }\n"}),
    ("modules", {"virga/new/a.cc": "int x;\n"}),
    ("strategies", {"virga/strategy/ring.cc": "std::unique_ptr<Strategy> make_ring(const StrategyContext& c) {}\n"}),
    ("documents", {"docs/a.md": "See [b](b.md#c).\n"}),
    ("documents", {"virga/collective/a/b.cc": COSTS}),
]


class Tidy(unittest.TestCase):
    def rules_broken(self, files, exceptions=()):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**MODULES, **files}.items():
                target = pathlib.Path(root, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            return [rule for _, _, rule, _ in tidy.breaches(root, exceptions)]

    def test_every_rule_has_a_case(self):
        self.assertEqual({rule.__name__ for rule in tidy.RULES + tidy.TREE_RULES}, set(CASES))

    def test_every_rule_finds_what_it_is_there_for(self):
        for rule, (bad, _) in CASES.items():
            with self.subTest(rule):
                self.assertIn(rule, self.rules_broken(bad))
        for rule, bad in BAD:
            with self.subTest(f"{rule}: {bad}"):
                self.assertIn(rule, self.rules_broken(bad))

    def test_no_rule_objects_to_what_is_allowed(self):
        for rule, (_, good) in CASES.items():
            with self.subTest(rule):
                self.assertNotIn(rule, self.rules_broken(good))

    def test_an_exception_excepts_one_file_from_one_rule(self):
        bad, _ = CASES["clocks"]
        self.assertEqual(self.rules_broken(bad, [("clocks", "virga/net/a.cc")]), [])

    def test_an_exception_that_is_not_needed_is_a_breach(self):
        self.assertEqual(self.rules_broken({}, [("clocks", "virga/net/a.cc")]), ["exceptions"])


if __name__ == "__main__":
    unittest.main()
