"""What the codecs are held against, none of it their own: a CRC by its definition, bytes that other clients wrote."""

from __future__ import annotations


def crc32c_by_definition(data: bytes) -> int:
    """Bit by bit, with the reflected polynomial of RFC 3720."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


# Two records: (key "k", value "hello", header trace=0102, time 1700000000000) and (null, null, none, 250 ms later).
# The fields were written down from the protocol's definition; aiokafka 0.14 builds the same bytes.
GOLDEN_BATCH = bytes.fromhex(
    "0000000000000000"  # base offset 0
    "0000004f"  # 79 bytes follow
    "ffffffff"  # leader epoch -1
    "02"  # magic
    "a474bfee"  # CRC-32C of what follows
    "0000"  # attributes: not compressed, CreateTime
    "00000001"  # last offset delta 1
    "0000018bcfe56800"  # base timestamp 1700000000000
    "0000018bcfe568fa"  # max timestamp, 250 more
    "ffffffffffffffff"  # producer id -1
    "ffff"  # producer epoch -1
    "ffffffff"  # base sequence -1
    "00000002"  # 2 records
    "2a"  # a record of 21 bytes (zigzag)
    "00"  # attributes
    "00"  # timestamp delta 0
    "00"  # offset delta 0
    "026b"  # key of 1 byte
    "0a68656c6c6f"  # value of 5 bytes
    "02"  # 1 header
    "0a7472616365"  # its name of 5 bytes
    "040102"  # its value of 2 bytes
    "0e"  # a record of 7 bytes
    "00"  # attributes
    "f403"  # timestamp delta 250
    "02"  # offset delta 1
    "01"  # key: null
    "01"  # value: null
    "00"  # no headers
)

# The same records as aiokafka 0.14 compresses them.
GOLDEN_COMPRESSED = {
    "GZIP": bytes.fromhex(
        "000000000000000000000063ffffffff023947e0380001000000010000018bcfe568000000018bcfe568faffffffffffffffffffffffff"
        "ffff000000021f8b0800e266f96a02ffd362606060cae6ca48cdc9c967e22a294a4c4e656164e263f8c2ccc4c8c80000911244bc1e0000"
        "00"
    ),
    "SNAPPY": bytes.fromhex(
        "000000000000000000000065ffffffff029a3cc8b00002000000010000018bcfe568000000018bcfe568faffffffffffffffffffffffff"
        "ffff0000000282534e41505059000000000100000001000000201e742a000000026b0a68656c6c6f020a74726163650401020e00f40302"
        "010100"
    ),
    "LZ4": bytes.fromhex(
        "000000000000000000000062ffffffff02149d7f400003000000010000018bcfe568000000018bcfe568faffffffffffffffffffffffff"
        "ffff0000000204224d187040ad1e0000802a000000026b0a68656c6c6f020a74726163650401020e00f40302010100b73e3fb300000000"
    ),
    "ZSTD": bytes.fromhex(
        "000000000000000000000058ffffffff02d690cec00004000000010000018bcfe568000000018bcfe568faffffffffffffffffffffffff"
        "ffff0000000228b52ffd201ef100002a000000026b0a68656c6c6f020a74726163650401020e00f40302010100"
    ),
}

# "hello, " twenty times, in forms that are allowed and that this package does not write itself.
PLAIN = b"hello, " * 20
FOREIGN_FORMS = {
    "GZIP": bytes.fromhex(  # with a file name and a time
        "1f8b08080100000002ff7800cb48cdc9c9d751c8180c140003386e2f8c000000"
    ),
    "SNAPPY": bytes.fromhex("8c011868656c6c6f2c20fe0700fe07000507"),  # bare, without the framing of snappy-java
    "LZ4": bytes.fromhex(  # liblz4, with content size field and checksum
        "04224d186c408c00000000000000ba110000007f68656c6c6f2c2007006d506c6c6f2c20000000006ed69926"
    ),
    "ZSTD": bytes.fromhex("28b52ffd00587500003868656c6c6f2c2001000251c508"),  # libzstd as a stream: no content size
}
