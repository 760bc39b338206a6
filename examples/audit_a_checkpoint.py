"""Audit a checkpoint: which heads disperse, which norms give the signal back, where it fails.

    python examples/audit_a_checkpoint.py [CHECKPOINT [FOLDER]]

CHECKPOINT is a folder or the name of a shipped checkpoint; the report goes to FOLDER.
"""

import sys

from resharpen.analyses import audit, audit_figures, render_report, render_text
from resharpen.models import load_checkpoint


def main(source: str = "set-complement-post", folder: str = "results/example-audit") -> None:
    checkpoint = load_checkpoint(source)
    result = audit(checkpoint, lengths=[1, 2, 4, 8, 12, 16, 20, 24, 28, 31], n_sequences=128)
    print(render_text(result))

    # The verdicts are data: act on them.
    model = next(verdict for verdict in result.verdicts if verdict.level == "model")
    print(f"{model.subject}: {model.verdict} ({model.reason})")

    report = render_report(result, audit_figures(result, checkpoint))
    print(f"report: {result.save(folder, report=report) / 'report.html'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
