from wire.protocols import protocol

__all__ = ["protocol"]
