"""The plain `quic` transport with an ordinary aioquic.asyncio client, and with such a server, on loopback.

What those have to know is in the transport's description: the ALPN protocol, and that a message is a unidirectional
stream that begins with an identifier of 8 octets.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import aioquic.asyncio
import pytest
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from bicoastal.transports.base import EndpointContext, PathView
from bicoastal.transports.events import Connected, MessageReceived
from bicoastal.transports.quic.credentials import ALPN, Credentials, make_credentials
from bicoastal.transports.quic.endpoint import QuicEndpoint, QuicParameters
from helpers.asyncio_endpoint import AsyncioEnd

REQUEST, RESPONSE = Random(1).randbytes(3_000_000), Random(2).randbytes(2_000_000)
LIMIT_S = 60.0

# aioquic's stream adapters do not say whether they are closing, so asyncio complains of every one of them
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


@pytest.fixture
def credentials() -> Credentials:
    return make_credentials(SystemRandom())


def _endpoint(role: str, credentials: Credentials) -> QuicEndpoint:
    context = EndpointContext(
        role=role,
        flow="loopback",
        paths=(PathView(path_id=0, name="lo", mtu_bytes=1500),),
        rng=SystemRandom(),
    )
    return QuicEndpoint(context, QuicParameters(), credentials=credentials)


def _run(conversation: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(conversation, LIMIT_S))


def _files(credentials: Credentials, folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(credentials.certificate.public_bytes(Encoding.PEM))
    if credentials.private_key is not None:
        key.write_bytes(credentials.private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, key


def test_an_ordinary_server_takes_our_messages_and_we_take_its(credentials: Credentials, tmp_path: Path) -> None:
    certificate, key = _files(credentials, tmp_path)
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[ALPN])
    configuration.load_cert_chain(certificate, key)
    requests: list[bytes] = []
    protocols: list[QuicConnectionProtocol] = []

    class Protocol(QuicConnectionProtocol):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            protocols.append(self)

    tasks: set[asyncio.Task[None]] = set()

    def on_stream(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        async def answer() -> None:
            requests.append(await reader.read())
            _, writer = await protocols[0].create_stream(is_unidirectional=True)
            writer.write((77).to_bytes(8, "big") + RESPONSE)
            writer.write_eof()

        tasks.add(asyncio.ensure_future(answer()))

    async def conversation() -> None:
        server = await aioquic.asyncio.serve(
            "127.0.0.1", 0, configuration=configuration, create_protocol=Protocol, stream_handler=on_stream
        )
        address = server._transport.get_extra_info("sockname")  # type: ignore[attr-defined]
        loop = asyncio.get_running_loop()
        _, end = await loop.create_datagram_endpoint(
            lambda: AsyncioEnd(_endpoint("client", credentials.public()), address), local_addr=("127.0.0.1", 0)
        )
        end.send_message(5, REQUEST)  # before it is connected
        await end.expect(lambda event: isinstance(event, Connected))
        answer = await end.expect(lambda event: isinstance(event, MessageReceived))
        assert isinstance(answer, MessageReceived)
        assert (answer.message_id, bytes(answer.data)) == (77, RESPONSE)
        assert requests == [(5).to_bytes(8, "big") + REQUEST]
        assert end.endpoint.counters().rejected == 0
        end.close()
        server.close()
        await asyncio.sleep(0.05)

    _run(conversation())


def test_an_ordinary_client_is_served_and_checks_our_certificate(credentials: Credentials, tmp_path: Path) -> None:
    certificate, _ = _files(credentials.public(), tmp_path)
    configuration = QuicConfiguration(
        is_client=True, alpn_protocols=[ALPN], cafile=str(certificate), server_name="bicoastal"
    )

    async def conversation() -> None:
        loop = asyncio.get_running_loop()
        transport, end = await loop.create_datagram_endpoint(
            lambda: AsyncioEnd(_endpoint("server", credentials)), local_addr=("127.0.0.1", 0)
        )
        answers: asyncio.Queue[bytes] = asyncio.Queue()
        tasks: set[asyncio.Task[None]] = set()

        def on_stream(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            async def read() -> None:
                answers.put_nowait(await reader.read())

            tasks.add(asyncio.ensure_future(read()))

        host, port = transport.get_extra_info("sockname")
        async with aioquic.asyncio.connect(host, port, configuration=configuration, stream_handler=on_stream) as client:
            for unidirectional in (True, False):
                _, writer = await client.create_stream(is_unidirectional=unidirectional)
                writer.write((6).to_bytes(8, "big") + REQUEST)
                writer.write_eof()
                request = await end.expect(lambda event: isinstance(event, MessageReceived))
                assert isinstance(request, MessageReceived)
                assert (request.message_id, bytes(request.data)) == (6, REQUEST)
            end.send_message(8, RESPONSE)
            assert await answers.get() == (8).to_bytes(8, "big") + RESPONSE
            await client.ping()
            client.request_key_update()
            end.send_message(9, RESPONSE)
            assert await answers.get() == (9).to_bytes(8, "big") + RESPONSE
        end.close()
        await asyncio.sleep(0.05)

    _run(conversation())
