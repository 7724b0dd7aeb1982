"""What is imported at run time; ``make lint`` checks the contracts on who may import whom."""

import subprocess
import sys


def test_library_imports_torch_alone():
    """In a new process, the library loads nothing of the experiments."""
    heavy = (
        "phantomgrad_suite torchvision torch._dynamo hydra lightning matplotlib omegaconf scipy "
        "sklearn torch_geometric torchmetrics wandb"
    )
    code = (
        "import sys, phantomgrad, phantomgrad.models\n"
        f"print(*(name for name in {heavy.split()} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_status_and_reports_start_without_torch():
    """This is tested in a new process: the status must not wait for torch."""
    names = ("status", "show", "export_wandb", "report.command")
    modules = ", ".join(f"phantomgrad_suite.{name}" for name in names)
    code = f"import sys, {modules}\nprint(*({{'torch', 'hydra', 'lightning'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
