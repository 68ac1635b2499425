# Generated from reactant_proto/control.proto by generate.py. Do not edit.
from reactant_proto.pool import load as _load

DESCRIPTOR = _load(
    b'\n\x1creactant_proto/control.proto\x12\x08reactant"N\n\x18SetModelResidencyReq'
    b'uest\x12\x14\n\x05model\x18\x01 \x01(\tR\x05model\x12\x1c\n\tresidency\x18\x02 \x01(\tR\tresidency"\x1b\n\x19SetM'
    b'odelResidencyResponse"E\n\x15SetModelPolicyRequest\x12\x14\n\x05model\x18\x01 \x01(\tR\x05m'
    b'odel\x12\x16\n\x06weight\x18\x02 \x01(\x01R\x06weight"\x18\n\x16SetModelPolicyResponse"\x16\n\x14Compac'
    b'tMemoryRequest"\xd8\x02\n\x15CompactMemoryResponse\x12\x1f\n\x0bmoved_bytes\x18\x01 \x01(\x04R\nm'
    b'ovedBytes\x12-\n\x13bytes_in_use_before\x18\x02 \x01(\x04R\x10bytesInUseBefore\x12+\n\x12byte'
    b's_in_use_after\x18\x03 \x01(\x04R\x0fbytesInUseAfter\x129\n\x19largest_free_block_befo'
    b're\x18\x04 \x01(\x04R\x16largestFreeBlockBefore\x127\n\x18largest_free_block_after\x18\x05 \x01'
    b'(\x04R\x15largestFreeBlockAfter\x12\x18\n\x07summary\x18\x06 \x01(\tR\x07summary\x124\n\x07workers\x18\x07'
    b' \x03(\x0b2\x1a.reactant.WorkerCompactionR\x07workers"y\n\x10WorkerCompaction\x12\x16\n'
    b'\x06worker\x18\x01 \x01(\tR\x06worker\x127\n\x06result\x18\x02 \x01(\x0b2\x1f.reactant.CompactMemoryRe'
    b'sponseR\x06result\x12\x14\n\x05error\x18\x03 \x01(\tR\x05error"\x1b\n\x19ModelControlStatusReques'
    b't"\xa1\x02\n\x1aModelControlStatusResponse\x12\x16\n\x06worker\x18\x01 \x01(\tR\x06worker\x12!\n\x0ccont'
    b'rol_mode\x18\x02 \x01(\tR\x0bcontrolMode\x12\x1e\n\ndiscipline\x18\x03 \x01(\tR\ndiscipline\x12.\n\x13w'
    b'eight_budget_bytes\x18\x04 \x01(\x04R\x11weightBudgetBytes\x12.\n\x06models\x18\x05 \x03(\x0b2\x16.re'
    b'actant.ModelControlR\x06models\x126\n\x17max_concurrent_requests\x18\x06 \x01(\rR\x15ma'
    b'xConcurrentRequests\x12\x10\n\x03gpu\x18\x07 \x01(\tR\x03gpu"\x8e\x05\n\x0cModelControl\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version\x12\x14\n\x05state\x18\x03 \x01(\tR\x05state\x12\x16\n\x06re'
    b'ason\x18\x04 \x01(\tR\x06reason\x12\x1c\n\tresidency\x18\x05 \x01(\tR\tresidency\x12#\n\rhost_residen'
    b"t\x18\x06 \x01(\x08R\x0chostResident\x12'\n\x0fdevice_resident\x18\x07 \x01(\x08R\x0edeviceResident\x12!"
    b'\n\x0cweight_bytes\x18\x08 \x01(\x04R\x0bweightBytes\x12\x16\n\x06weight\x18\t \x01(\x01R\x06weight\x12\x1f\n\x0bque'
    b"ue_depth\x18\n \x01(\rR\nqueueDepth\x12'\n\x0fcompute_seconds\x18\x0b \x01(\x01R\x0ecomputeSeco"
    b"nds\x12'\n\x0frequests_served\x18\x0c \x01(\x04R\x0erequestsServed\x12\x1e\n\ndispatches\x18\r \x01(\x04"
    b'R\ndispatches\x12\x1f\n\x0brows_served\x18\x0e \x01(\x04R\nrowsServed\x12$\n\x0emax_batch_size\x18'
    b'\x0f \x01(\rR\x0cmaxBatchSize\x12\x1f\n\x0bbatch_input\x18\x10 \x01(\tR\nbatchInput\x12\x1d\n\nbatch_ax'
    b'is\x18\x11 \x01(\rR\tbatchAxis\x12\x1e\n\nidempotent\x18\x12 \x01(\x08R\nidempotent\x12+\n\x12max_queue'
    b'_delay_ms\x18\x13 \x01(\x01R\x0fmaxQueueDelayMs\x12\x14\n\x05calls\x18\x14 \x03(\tR\x05calls2\xfe\x02\n\x0eContr'
    b'olService\x12a\n\x12ModelControlStatus\x12#.reactant.ModelControlStatusReq'
    b'uest\x1a$.reactant.ModelControlStatusResponse"\x00\x12^\n\x11SetModelResidenc'
    b'y\x12".reactant.SetModelResidencyRequest\x1a#.reactant.SetModelResiden'
    b'cyResponse"\x00\x12U\n\x0eSetModelPolicy\x12\x1f.reactant.SetModelPolicyRequest\x1a'
    b' .reactant.SetModelPolicyResponse"\x00\x12R\n\rCompactMemory\x12\x1e.reactant.'
    b'CompactMemoryRequest\x1a\x1f.reactant.CompactMemoryResponse"\x00b\x06proto3'
    , __name__, globals())
