"""HTTP/2 connections of both roles: frames, flow control, pacing. The only room that knows ngh2."""
