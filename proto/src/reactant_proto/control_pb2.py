# Generated from reactant_proto/control.proto by generate.py. Do not edit.
from reactant_proto.pool import load as _load

DESCRIPTOR = _load(
    b'\n\x1creactant_proto/control.proto\x12\x08reactant"N\n\x18SetModelResidencyReq'
    b'uest\x12\x14\n\x05model\x18\x01 \x01(\tR\x05model\x12\x1c\n\tresidency\x18\x02 \x01(\tR\tresidency"\x1b\n\x19SetM'
    b'odelResidencyResponse"E\n\x15SetModelPolicyRequest\x12\x14\n\x05model\x18\x01 \x01(\tR\x05m'
    b'odel\x12\x16\n\x06weight\x18\x02 \x01(\x01R\x06weight"\x18\n\x16SetModelPolicyResponse"\x16\n\x14Compac'
    b'tMemoryRequest"\xa2\x02\n\x15CompactMemoryResponse\x12\x1f\n\x0bmoved_bytes\x18\x01 \x01(\x04R\nm'
    b'ovedBytes\x12-\n\x13bytes_in_use_before\x18\x02 \x01(\x04R\x10bytesInUseBefore\x12+\n\x12byte'
    b's_in_use_after\x18\x03 \x01(\x04R\x0fbytesInUseAfter\x129\n\x19largest_free_block_befo'
    b're\x18\x04 \x01(\x04R\x16largestFreeBlockBefore\x127\n\x18largest_free_block_after\x18\x05 \x01'
    b'(\x04R\x15largestFreeBlockAfter\x12\x18\n\x07summary\x18\x06 \x01(\tR\x07summary"\x1b\n\x19ModelCont'
    b'rolStatusRequest"\xa1\x02\n\x1aModelControlStatusResponse\x12\x16\n\x06worker\x18\x01 \x01(\tR'
    b'\x06worker\x12!\n\x0ccontrol_mode\x18\x02 \x01(\tR\x0bcontrolMode\x12\x1e\n\ndiscipline\x18\x03 \x01(\tR\n'
    b'discipline\x12.\n\x13weight_budget_bytes\x18\x04 \x01(\x04R\x11weightBudgetBytes\x12.\n\x06mo'
    b'dels\x18\x05 \x03(\x0b2\x16.reactant.ModelControlR\x06models\x126\n\x17max_concurrent_req'
    b'uests\x18\x06 \x01(\rR\x15maxConcurrentRequests\x12\x10\n\x03gpu\x18\x07 \x01(\tR\x03gpu"\x8e\x05\n\x0cModelCo'
    b'ntrol\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12\x14\n\x05state\x18\x03 \x01'
    b'(\tR\x05state\x12\x16\n\x06reason\x18\x04 \x01(\tR\x06reason\x12\x1c\n\tresidency\x18\x05 \x01(\tR\tresidency\x12'
    b"#\n\rhost_resident\x18\x06 \x01(\x08R\x0chostResident\x12'\n\x0fdevice_resident\x18\x07 \x01(\x08R\x0ed"
    b'eviceResident\x12!\n\x0cweight_bytes\x18\x08 \x01(\x04R\x0bweightBytes\x12\x16\n\x06weight\x18\t \x01(\x01'
    b"R\x06weight\x12\x1f\n\x0bqueue_depth\x18\n \x01(\rR\nqueueDepth\x12'\n\x0fcompute_seconds\x18\x0b \x01"
    b"(\x01R\x0ecomputeSeconds\x12'\n\x0frequests_served\x18\x0c \x01(\x04R\x0erequestsServed\x12\x1e\n\nd"
    b'ispatches\x18\r \x01(\x04R\ndispatches\x12\x1f\n\x0brows_served\x18\x0e \x01(\x04R\nrowsServed\x12$\n\x0e'
    b'max_batch_size\x18\x0f \x01(\rR\x0cmaxBatchSize\x12\x1f\n\x0bbatch_input\x18\x10 \x01(\tR\nbatchIn'
    b'put\x12\x1d\n\nbatch_axis\x18\x11 \x01(\rR\tbatchAxis\x12\x1e\n\nidempotent\x18\x12 \x01(\x08R\nidempote'
    b'nt\x12+\n\x12max_queue_delay_ms\x18\x13 \x01(\x01R\x0fmaxQueueDelayMs\x12\x14\n\x05calls\x18\x14 \x03(\tR\x05'
    b'calls2\xfe\x02\n\x0eControlService\x12a\n\x12ModelControlStatus\x12#.reactant.ModelC'
    b'ontrolStatusRequest\x1a$.reactant.ModelControlStatusResponse"\x00\x12^\n\x11S'
    b'etModelResidency\x12".reactant.SetModelResidencyRequest\x1a#.reactant.'
    b'SetModelResidencyResponse"\x00\x12U\n\x0eSetModelPolicy\x12\x1f.reactant.SetMode'
    b'lPolicyRequest\x1a .reactant.SetModelPolicyResponse"\x00\x12R\n\rCompactMem'
    b'ory\x12\x1e.reactant.CompactMemoryRequest\x1a\x1f.reactant.CompactMemoryResp'
    b'onse"\x00b\x06proto3'
    , __name__, globals())
