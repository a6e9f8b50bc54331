"""Values to columns: raw bytes, JSON, Avro or Protobuf, with or without a schema registry's id in front. Pure."""

from __future__ import annotations

from catena.tables.values.base import Decoded, Decoder, ValueSpec

__all__ = ["Decoded", "Decoder", "ValueSpec", "decoder_of"]


def decoder_of(spec: ValueSpec) -> Decoder:
    """Raises ConfigError if there is no sense in its schemas."""
    match spec.format:
        case "raw":
            from catena.tables.values.raw import RawDecoder

            return RawDecoder()
        case "json":
            from catena.tables.values.json import JsonDecoder

            return JsonDecoder(spec)
        case "avro":
            from catena.tables.values.avro import AvroDecoder

            return AvroDecoder(spec)
        case "protobuf":
            from catena.tables.values.protobuf import ProtobufDecoder

            return ProtobufDecoder(spec)
