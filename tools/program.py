"""The program `mae`, as the checkers of this folder run it."""
import json, subprocess, sys


class Program:
    """Runs the program at `path`; texts that it reads are put into the folder `work`."""

    def __init__(self, path, work):
        self.path, self.work = path, work

    def __call__(self, *words):
        done = subprocess.run([self.path, *map(str, words)], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"mae {' '.join(map(str, words))}:\n{done.stderr}")
        return done.stdout

    def generate(self, model, lines, *more):
        """Translations of lines, as `mae generate --jsonl` writes them."""
        path = self.work / "source.txt"
        path.write_text("".join(line + "\n" for line in lines))
        out = self("generate", model, "--source", path, "--device", "cpu", "--jsonl", *more)
        return [json.loads(line) for line in out.splitlines()]
