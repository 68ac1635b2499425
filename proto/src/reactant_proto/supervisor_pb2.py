# Generated from reactant_proto/supervisor.proto by generate.py. Do not edit.
from reactant_proto.pool import load as _load

DESCRIPTOR = _load(
    b'\n\x1freactant_proto/supervisor.proto\x12\x08reactant"\x13\n\x11NodeStatusRequest'
    b'"\xf4\x01\n\x12NodeStatusResponse\x12\x12\n\x04node\x18\x01 \x01(\tR\x04node\x12\x12\n\x04role\x18\x02 \x01(\tR\x04role\x12'
    b'\x14\n\x05ready\x18\x03 \x01(\x08R\x05ready\x12\x1a\n\x08stopping\x18\x04 \x01(\x08R\x08stopping\x12\x18\n\x07devices\x18\x05 \x03'
    b'(\tR\x07devices\x12%\n\x0edevices_source\x18\x06 \x01(\tR\rdevicesSource\x12\x10\n\x03pid\x18\x07 \x01(\rR'
    b'\x03pid\x121\n\x08children\x18\x08 \x03(\x0b2\x15.reactant.ChildStatusR\x08children"\xf7\x01\n\x0bChil'
    b'dStatus\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x10\n\x03pid\x18\x02 \x01(\rR\x03pid\x12\x14\n\x05state\x18\x03 \x01(\tR\x05st'
    b'ate\x12\x1a\n\x08restarts\x18\x04 \x01(\rR\x08restarts\x12\x1a\n\x08failures\x18\x05 \x01(\rR\x08failures\x12#\n\rs'
    b'tate_seconds\x18\x06 \x01(\x01R\x0cstateSeconds\x12\x1b\n\tlast_exit\x18\x07 \x01(\tR\x08lastExit\x12\x1a\n'
    b'\x08progress\x18\x08 \x01(\tR\x08progress\x12\x16\n\x06device\x18\t \x01(\tR\x06device")\n\x13RestartChil'
    b'dRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name"\x16\n\x14RestartChildResponse"\x0e\n\x0cDrainReq'
    b'uest"\x0f\n\rDrainResponse2\xe7\x01\n\x11SupervisorService\x12E\n\x06Status\x12\x1b.reactant'
    b'.NodeStatusRequest\x1a\x1c.reactant.NodeStatusResponse"\x00\x12O\n\x0cRestartChi'
    b'ld\x12\x1d.reactant.RestartChildRequest\x1a\x1e.reactant.RestartChildRespons'
    b'e"\x00\x12:\n\x05Drain\x12\x16.reactant.DrainRequest\x1a\x17.reactant.DrainResponse"\x00b'
    b'\x06proto3'
    , __name__, globals())
