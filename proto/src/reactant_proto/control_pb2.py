# Generated from reactant_proto/control.proto by generate.py. Do not edit.
from reactant_proto.pool import load as _load

DESCRIPTOR = _load(
    b'\n\x1creactant_proto/control.proto\x12\x08reactant"\x1b\n\x19ModelControlStatusRe'
    b'quest"\xa1\x02\n\x1aModelControlStatusResponse\x12\x16\n\x06worker\x18\x01 \x01(\tR\x06worker\x12!\n\x0c'
    b'control_mode\x18\x02 \x01(\tR\x0bcontrolMode\x12\x1e\n\ndiscipline\x18\x03 \x01(\tR\ndiscipline\x12'
    b'.\n\x13weight_budget_bytes\x18\x04 \x01(\x04R\x11weightBudgetBytes\x12.\n\x06models\x18\x05 \x03(\x0b2'
    b'\x16.reactant.ModelControlR\x06models\x126\n\x17max_concurrent_requests\x18\x06 \x01(\r'
    b'R\x15maxConcurrentRequests\x12\x10\n\x03gpu\x18\x07 \x01(\tR\x03gpu"\xcb\x04\n\x0cModelControl\x12\x12\n\x04na'
    b'me\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12\x14\n\x05state\x18\x03 \x01(\tR\x05state\x12\x16'
    b'\n\x06reason\x18\x04 \x01(\tR\x06reason\x12\x1c\n\tresidency\x18\x05 \x01(\tR\tresidency\x12#\n\rhost_res'
    b"ident\x18\x06 \x01(\x08R\x0chostResident\x12'\n\x0fdevice_resident\x18\x07 \x01(\x08R\x0edeviceReside"
    b'nt\x12!\n\x0cweight_bytes\x18\x08 \x01(\x04R\x0bweightBytes\x12\x16\n\x06weight\x18\t \x01(\x01R\x06weight\x12\x1f\n'
    b"\x0bqueue_depth\x18\n \x01(\rR\nqueueDepth\x12'\n\x0fcompute_seconds\x18\x0b \x01(\x01R\x0ecompute"
    b"Seconds\x12'\n\x0frequests_served\x18\x0c \x01(\x04R\x0erequestsServed\x12\x1e\n\ndispatches\x18\r"
    b' \x01(\x04R\ndispatches\x12\x1f\n\x0brows_served\x18\x0e \x01(\x04R\nrowsServed\x12$\n\x0emax_batch_s'
    b'ize\x18\x0f \x01(\rR\x0cmaxBatchSize\x12\x1f\n\x0bbatch_input\x18\x10 \x01(\tR\nbatchInput\x12\x1d\n\nbatc'
    b'h_axis\x18\x11 \x01(\rR\tbatchAxis\x12\x1e\n\nidempotent\x18\x12 \x01(\x08R\nidempotent2s\n\x0eContr'
    b'olService\x12a\n\x12ModelControlStatus\x12#.reactant.ModelControlStatusReq'
    b'uest\x1a$.reactant.ModelControlStatusResponse"\x00b\x06proto3'
    , __name__, globals())
