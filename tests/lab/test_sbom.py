"""The bill of materials of an image that is there, against what the software in it says of itself."""

import re
import subprocess

from nagle_lab.lab.containers.compose import ComposeSearch
from nagle_lab.lab.containers.docker import image_details
from nagle_lab.lab.containers.images import image_names, ready_images
from nagle_lab.lab.scenarios.scenario_file import find_scenario
from supply_chain import packages, sbom
from support.repository import REPOSITORY
from support.supply import check_bill


def test_the_bill_of_the_nginx_image_names_the_nginx_that_runs():
    lab = find_scenario("nginx-static").labs["bridge"]
    tag, _ = ready_images(lab, ComposeSearch().result(), {}, print)
    image = next(name for name in image_names(lab, tag) if name.startswith("nagle-lab/nginx:"))
    bill = sbom.image_bill(
        image_details([image])[0], "nagle-lab/nginx", REPOSITORY / "nginx", packages.content_of(image)
    )
    check_bill(bill)
    command = ["docker", "run", "--rm", "--network=none", "--entrypoint=nginx", image, "-v"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    version = re.fullmatch(r"nginx version: nginx/([\d.]+)\n", said)
    assert version, said
    named = {component["name"]: component.get("version", "") for component in bill["components"]}
    assert named["nginx"].startswith(f"{version[1]}-")
    assert {"base-files", "dpkg", "libc6", "gettext-base", "nginx/nginx.conf"} <= named.keys()
