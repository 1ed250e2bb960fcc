//! Transports: Unix and TCP listeners, HTTP, WebSocket, gRPC and MCP.

pub(crate) mod connection;
pub(crate) mod grpc;
pub(crate) mod grpc_body;
pub(crate) mod http;
pub(crate) mod http_body;
pub(crate) mod json_rpc;
pub(crate) mod linger;
pub(crate) mod mcp;
pub(crate) mod request_body;
pub(crate) mod route;
pub(crate) mod tcp_listener;
pub(crate) mod unix_listener;
pub(crate) mod websocket;
pub(crate) mod ws_frames;
