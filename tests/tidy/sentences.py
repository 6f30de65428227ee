#!/usr/bin/env python3
"""How long the sentences are that a person reads: count, mean and how many have more than 25 words.

Usage: sentences.py [--list] [--max N] KIND FILE...

KIND  docs      Markdown: paragraphs, list items, cells of tables
      help      what "COMMAND --help all" printed
      comments  of C, shell and Python

A sentence ends with . ! or ? before a blank, or with its paragraph. Code between backticks is one word. A colon or a semicolon
ends nothing. Cells of fewer than four words do not count. --list prints the long ones, the longest first. --max N exits with 1 if there are more than N."""
import re
import sys

LONG = 25
HARD = "\u00a0"  # a blank inside code, where no word ends
SHORTENED = re.compile(r"\b(e\.g|i\.e|vs|cf|etc|al|approx|resp|no|fig|eq|sec|Sec)\.(?=\s)", re.IGNORECASE)
END = re.compile(r"""(?<=[.!?])["')*_]*[ \n\t]+(?=["'(*_`<\[]*[A-Za-z0-9`])""")


def sentences(text):
    text = re.sub(r"`+[^`]+`+", lambda code: re.sub(r"\s+", HARD, code.group(0)), text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = SHORTENED.sub(r"\1", text)
    return [s for s in END.split(text) if s.strip()]


def n_words(sentence):
    return sum(1 for word in re.split(r"[ \n\t]+", sentence) if re.search(r"[A-Za-z0-9]", word))


def paragraphs(lines, starts):
    """Lines joined up to an empty one or one that begins something of its own: [(line number, text)]."""
    held, at = [], 0
    for number, line in enumerate(lines, 1):
        if not line.strip() or starts(line):
            if held:
                yield at, " ".join(held)
            held = []
        if line.strip():
            at = number if not held else at
            held.append(line.strip())
    if held:
        yield at, " ".join(held)


def of_docs(lines):
    fenced, made, kept = False, False, []
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
            line = ""
        made = made or line.startswith("<!-- made by")
        hidden = fenced or made or re.match(r"#|<!--|\[[^]]+\]: ", line) or re.fullmatch(r"[|:\- ]+", line.strip())
        if line.startswith("<!-- end"):
            made = False
        kept.append("" if hidden else line)
    for at, text in paragraphs(kept, lambda line: re.match(r"\s*([-*+]|\d+\.)\s|\s*\|", line)):
        if text.startswith("|"):
            for cell in text.strip("|").split("|"):
                if len(cell.split()) >= 4:
                    yield at, cell.strip()
        else:
            yield at, re.sub(r"^([-*+]|\d+\.)\s+", "", text)


def of_help(lines):
    """A row, of options or another table, is what stands right of its name; its further lines are indented as far. Usage, examples
    and JSON are left out."""
    kept = []
    for line in lines:
        row = re.match(r"\s{1,6}(--\S.*?|\S+(?: \S+)?)\s{2,}(\S.*)$", line)
        kept.append(HARD + row.group(2) if row else line)
        if re.match(r"\s+(\$ |mpirun |hecate-[a-z]+ |[{\"])|usage: ", line):
            kept[-1] = ""
    for at, text in paragraphs(kept, lambda line: line.startswith(HARD) or not line.startswith(" ") or re.match(r" +\w+: ", line)):
        if not text.lstrip().startswith("keys: "):  # a list of names
            yield at, text.strip(HARD)


def of_c(text):
    """Block comments; those in // of lines that follow each other; formulas and pictures, which are indented, are left out."""
    for found in re.finditer(r'"(?:\\.|[^"\\\n])*"|/\*(.*?)\*/|((?:^[ \t]*//[^\n]*\n)+|//[^\n]*)', text, re.S | re.M):
        body = found.group(1) if found.group(1) is not None else found.group(2)
        if body is None:
            continue
        at = text.count("\n", 0, found.start()) + 1
        lines = [re.sub(r"^\s*(//|\* ?|\*$)", "", line) for line in body.split("\n")]
        lines[0] = lines[0].strip()
        prose = ["" if re.match(r"\s{2,}", line) or re.search(r"[|+]--|-->|\|.*\||  \S.*  ", line.strip()) else line for line in lines]
        for offset, part in paragraphs(prose, lambda line: re.match(r"\s*-\s", line)):
            if not re.match(r"clang-format|NOLINT|-{4}", part):
                yield at + offset - 1, part.strip("- ")


def of_script(text, path):
    if path.endswith(".py"):
        for found in re.finditer(r'"""(.*?)"""', text, re.S):
            at = text.count("\n", 0, found.start())
            lines = ["" if re.match(r"\s{6,}", line) else line for line in found.group(1).split("\n")]
            for offset, part in paragraphs(lines, lambda line: False):
                yield at + offset, part
    lines = [re.sub(r"^\s*# ?", "", line) if re.match(r"\s*#(?!!)", line) else "" for line in text.split("\n")]
    lines = ["" if re.match(r"\s{2,}|shellcheck|---", line) else line for line in lines]
    yield from paragraphs(lines, lambda line: False)


def units(kind, path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if kind == "docs":
        return of_docs(text.split("\n"))
    if kind == "help":
        return of_help(text.split("\n"))
    return of_script(text, path) if path.endswith((".sh", ".py")) else of_c(text)


def main(words):
    show = "--list" in words
    limit = int(words[words.index("--max") + 1]) if "--max" in words else None
    words = [w for i, w in enumerate(words) if w not in ("--list", "--max") and (i == 0 or words[i - 1] != "--max")]
    if len(words) < 2 or words[0] not in ("docs", "help", "comments"):
        sys.exit(__doc__)
    lengths, long = [], []
    for path in words[1:]:
        for at, text in units(words[0], path):
            for sentence in sentences(text):
                n = n_words(sentence)
                if n:
                    lengths.append(n)
                if n > LONG:
                    long.append((n, path, at, " ".join(sentence.replace(HARD, " ").split())))
    if not lengths:
        sys.exit("sentences.py: no sentence in " + " ".join(words[1:])[:200])
    if show or (limit is not None and len(long) > limit):
        for n, path, at, sentence in sorted(long, key=lambda row: (-row[0], row[1], row[2])):
            print("%s:%d: %d words: %s" % (path, at, n, sentence))
    print("%s: %d sentences, mean %.1f words, %d above %d" % (words[0], len(lengths), sum(lengths) / len(lengths), len(long), LONG))
    return 1 if limit is not None and len(long) > limit else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
