"""A C++ source file as the rules of tidy.py see it: its lines, its code without comments and strings, its functions.

No parser: it looks at brackets and at the words before them, which is enough for code that clang-format has laid out.
"""
import bisect
import re

CLOSING = {"(": ")", "[": "]", "{": "}"}

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/                                # comments
      | R"(?P<mark>[^()\s\\"]*)\(.*?\)(?P=mark)"          # raw strings
      | "(?:[^"\\\n]|\\.)*"                               # strings
      | (?<![0-9A-Za-z])'(?:[^'\\\n]|\\.)+'               # characters, but not the ' of 3'600
    """,
    re.DOTALL | re.VERBOSE,
)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group())


def without_comments_and_strings(text):
    """Blanks them out; every other character keeps its place."""
    return TOKEN.sub(blank, text)


class Source:
    def __init__(self, path, text):
        self.path = path  # relative to the root, with /
        self.text = text
        self.lines = text.splitlines()
        self.is_cpp = path.endswith((".h", ".cc", ".def"))
        self.is_header = path.endswith(".h")
        self.code = without_comments_and_strings(text) if self.is_cpp else ""
        self.shape = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, self.code, flags=re.MULTILINE)  # nor macros
        self._line_starts = [0] + [match.end() for match in re.finditer("\n", text)]

    def line_of(self, offset):
        return bisect.bisect_right(self._line_starts, offset)

    def under(self, *folders):
        return any(self.path.startswith(folder + "/") for folder in folders)

    def includes(self):
        """Yields (line, what), what with its quotes: '<chrono>' or '"virga/base/error.h"'."""
        for number, line in enumerate(self.lines, 1):
            match = re.match(r'\s*#\s*include\s+([<"][^>"]+[>"])', line)
            if match:
                yield number, match.group(1)

    def end_of(self, opening):
        """Where the bracket that opens here closes; the end of the text if it doesn't."""
        wanted = []
        for offset in range(opening, len(self.shape)):
            char = self.shape[offset]
            if char in CLOSING:
                wanted.append(CLOSING[char])
            elif wanted and char == wanted[-1]:
                wanted.pop()
                if not wanted:
                    return offset
        return len(self.shape)

    def lambda_at(self, offset):
        """If a lambda begins with this '[', where its body opens and closes; else None."""
        before = self.shape[:offset].rstrip()
        if before and (before[-1].isalnum() or before[-1] in "_)]") and not before.endswith("return"):
            return None  # a subscript
        after_captures = self.end_of(offset) + 1
        match = re.compile(r"\s*(\()?").match(self.shape, after_captures)
        if match.group(1):
            after_captures = self.end_of(match.end() - 1) + 1
        match = re.compile(r"\s*(?:mutable\s*|noexcept\s*)*(?:->[^{;]*)?\{").match(self.shape, after_captures)
        return (match.end() - 1, self.end_of(match.end() - 1)) if match else None

    def expression_from(self, offset):
        """Yields the (offset, character)s of the expression that goes on here, without the bodies of its lambdas."""
        depth = 0
        while offset < len(self.shape):
            char = self.shape[offset]
            if depth == 0 and char in ";,)]}":
                return
            body = self.lambda_at(offset) if char == "[" else None
            if body:
                offset = body[1] + 1
                continue
            yield offset, char
            depth += (char in "([{") - (char in ")]}")
            offset += 1

    def functions(self):
        """Yields (first line, last line, head) of every function body outside of other functions."""
        offset = head = 0
        while offset < len(self.shape):
            char = self.shape[offset]
            if char in ";}":
                head = offset + 1
            elif char == "{":
                text = self.shape[head:offset].strip()
                if "(" in text and not is_scope(text):
                    end = self.end_of(offset)
                    first = head + len(self.shape[head:offset]) - len(self.shape[head:offset].lstrip())
                    yield self.line_of(first), self.line_of(end), " ".join(text.split())
                    offset = end
                elif not is_scope(text):
                    offset = self.end_of(offset)  # an initialiser or an enumeration
                head = offset + 1
            offset += 1


def is_scope(head):
    """Whether what stands before a '{' opens a namespace or a class, in which functions stand."""
    head = re.sub(r"^\s*template\s*<[^{;]*?>\s*(?=class|struct|union)", "", head)
    head = re.sub(r"\balignas\s*\([^)]*\)|\[\[[^\]]*\]\]", "", head)
    return re.match(r"\s*(?:(?:public|private|protected):\s*)*(?:inline\s+|export\s+)?"
                    r"(?:namespace|class|struct|union|extern)\b(?![^{]*\)\s*(?:const|override|noexcept|\s)*$)",
                    head) is not None
