"""A local S3: moto's server."""

from collections.abc import Iterator
from urllib.request import Request, urlopen

import fsspec
import pytest

ACCESS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    """Its file system, with a bucket "captures"; this process and those it starts find it."""
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - slow to import, and every worker imports this file

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    urlopen(Request(f"{url}/moto-api/reset", method="POST")).close()  # its state lasts as long as the process
    for name, value in (ACCESS | {"AWS_ENDPOINT_URL": url}).items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").clear_instance_cache()
    s3 = fsspec.filesystem("s3")
    s3.mkdir("captures")
    try:
        yield s3
    finally:
        server.stop()
        s3.clear_instance_cache()
