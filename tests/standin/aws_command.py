"""`aws` for the tests: answers `aws eks get-token` with the control plane's token, and refuses everything else.

The kubeconfig of the program runs it; the real command would sign a request with the deployer's credentials.
"""

import argparse
import json
import os
import sys
from pathlib import Path

import yaml

KUBECONFIG = "COLDSTART_STANDIN_KUBECONFIG"


def main() -> int:
    """Prints an ExecCredential."""
    parser = argparse.ArgumentParser(prog="aws")
    services = parser.add_subparsers(dest="service", required=True)
    commands = services.add_parser("eks").add_subparsers(dest="command", required=True)
    get_token = commands.add_parser("get-token")
    get_token.add_argument("--cluster-name", required=True)
    get_token.add_argument("--region", required=True)
    get_token.add_argument("--role-arn")
    get_token.add_argument("--output", choices=["json"])
    parser.parse_args()
    if not os.environ.get("AWS_ACCESS_KEY_ID"):
        sys.stderr.write("Unable to locate credentials. You can configure credentials by running aws configure.\n")
        return 255
    kubeconfig = yaml.safe_load(Path(os.environ[KUBECONFIG]).read_text())
    credential = {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "spec": {},
        "status": {"token": kubeconfig["users"][0]["user"]["token"]},
    }
    sys.stdout.write(json.dumps(credential) + "\n")
    return 0


sys.exit(main())
