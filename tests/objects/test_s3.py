"""S3 keeps the contract, on a real server."""

from __future__ import annotations

import pytest

from catena.objects.base import ObjectStore
from catena.objects.s3 import S3Objects, S3Settings
from catena.runtime import SystemEntropy
from catena.testing.contracts.objects import ObjectStoreContract
from catena.testing.s3_server import SeaweedServer


@pytest.fixture
def settings(s3_server: SeaweedServer) -> S3Settings:
    return s3_server.settings(f"contract/{SystemEntropy().hex_id()}")


class TestS3Objects(ObjectStoreContract):
    @pytest.fixture
    def store(self, settings: S3Settings) -> ObjectStore:
        return S3Objects(settings)

    @pytest.fixture
    def second_store(self, settings: S3Settings) -> ObjectStore:
        return S3Objects(settings)
