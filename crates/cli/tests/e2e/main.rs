//! Everything through the real binary: what a user types, what the host looks like afterwards.

#[cfg(test)]
mod agents;
#[cfg(test)]
mod agents_served;
#[cfg(test)]
mod agents_whole;
#[cfg(test)]
mod agents_work;
#[cfg(test)]
mod ancestors;
#[cfg(test)]
mod approval;
#[cfg(test)]
mod approval_binding;
#[cfg(test)]
mod approval_notifications;
#[cfg(test)]
mod approval_prompts;
#[cfg(test)]
mod approvals;
#[cfg(test)]
#[path = "../attempts/mod.rs"]
#[cfg(test)]
mod attempts;
#[cfg(test)]
mod call_ceiling;
#[cfg(test)]
mod call_variables;
#[cfg(test)]
mod channel_text;
#[cfg(test)]
mod collector;
#[cfg(test)]
mod config;
#[cfg(test)]
mod consent;
#[cfg(test)]
mod consent_git;
#[cfg(test)]
mod container;
#[cfg(test)]
mod container_create;
#[cfg(test)]
mod container_daemon;
#[cfg(test)]
mod container_engines;
#[cfg(test)]
mod container_faults;
#[cfg(test)]
mod container_files;
#[cfg(test)]
mod container_images;
#[cfg(test)]
mod container_isolation;
#[cfg(test)]
mod container_network;
#[cfg(test)]
mod container_parity;
#[cfg(test)]
mod container_policy;
#[cfg(test)]
mod container_rules;
#[cfg(test)]
mod container_script;
#[cfg(test)]
mod container_secrets;
#[cfg(test)]
mod container_sessions;
#[cfg(test)]
mod daemon;
#[cfg(test)]
mod daemon_answers;
#[cfg(test)]
mod daemon_authorization_matrix;
#[cfg(test)]
mod daemon_browser;
#[cfg(test)]
mod daemon_ceiling;
#[cfg(test)]
mod daemon_child_sessions;
#[cfg(test)]
mod daemon_cli;
#[cfg(test)]
mod daemon_crash;
#[cfg(test)]
mod daemon_danger;
#[cfg(test)]
mod daemon_drain;
#[cfg(test)]
mod daemon_early_disconnect;
#[cfg(test)]
mod daemon_events;
#[cfg(test)]
mod daemon_fair_share;
#[cfg(test)]
mod daemon_files;
#[cfg(test)]
mod daemon_fixture;
#[cfg(test)]
mod daemon_fuzz;
#[cfg(test)]
mod daemon_grpc;
#[cfg(test)]
mod daemon_grpc_fuzz;
#[cfg(test)]
mod daemon_grpc_more;
#[cfg(test)]
mod daemon_http;
#[cfg(test)]
mod daemon_json_limits;
#[cfg(test)]
mod daemon_load;
#[cfg(test)]
mod daemon_locked;
#[cfg(test)]
mod daemon_memory;
#[cfg(test)]
mod daemon_openapi;
#[cfg(test)]
mod daemon_orphaned_approvals;
#[cfg(test)]
mod daemon_password_throttle;
#[cfg(test)]
mod daemon_pending_approvals;
#[cfg(test)]
mod daemon_policy_reload_live;
#[cfg(test)]
mod daemon_refused;
#[cfg(test)]
mod daemon_reload;
#[cfg(test)]
mod daemon_retention;
#[cfg(test)]
mod daemon_revocation;
#[cfg(test)]
mod daemon_revocation_tcp;
#[cfg(test)]
mod daemon_rights;
#[cfg(test)]
mod daemon_separation_of_duties;
#[cfg(test)]
mod daemon_session_cleanup;
#[cfg(test)]
mod daemon_slow_readers;
#[cfg(test)]
mod daemon_socket;
#[cfg(test)]
mod daemon_socket_owner;
#[cfg(test)]
mod daemon_source_limits;
#[cfg(test)]
mod daemon_store_quotas;
#[cfg(test)]
mod daemon_tcp;
#[cfg(test)]
mod daemon_tls;
#[cfg(test)]
mod daemon_token_ceiling;
#[cfg(test)]
mod daemon_tokens;
#[cfg(test)]
mod daemon_transport_parity;
#[cfg(test)]
mod daemon_unit;
#[cfg(test)]
mod daemon_watch;
#[cfg(test)]
mod daemon_workspaces;
#[cfg(test)]
mod docker;
#[cfg(test)]
mod environment;
#[cfg(test)]
mod everyday_work;
#[cfg(test)]
mod exec_server;
#[cfg(test)]
mod exit_codes;
#[cfg(test)]
mod file_tools;
#[cfg(test)]
mod files;
#[cfg(test)]
mod filtered;
#[cfg(test)]
mod filtered_asks;
#[cfg(test)]
mod filtered_clients;
#[cfg(test)]
mod filtered_faults;
#[cfg(test)]
mod filtered_git;
#[cfg(test)]
mod filtered_limits;
#[cfg(test)]
mod filtered_memory;
#[cfg(test)]
mod filtered_packages;
#[cfg(test)]
mod filtered_probes;
#[cfg(test)]
mod filtered_secrets;
#[cfg(test)]
mod filtered_signing;
#[cfg(test)]
mod filtered_tools;
#[cfg(test)]
mod git;
#[cfg(test)]
mod grants;
#[cfg(test)]
mod grpc_client;
#[cfg(test)]
mod grpc_messages;
#[cfg(test)]
mod grpc_official;
#[cfg(test)]
mod guarded_programs;
#[cfg(test)]
mod guarded_reads;
#[cfg(test)]
mod held;
#[cfg(test)]
mod held_bounds;
#[cfg(test)]
mod held_elsewhere;
#[cfg(test)]
mod held_links;
#[cfg(test)]
mod held_state;
#[cfg(test)]
mod help;
#[cfg(test)]
mod homes;
#[cfg(test)]
mod hooks;
#[cfg(test)]
mod hooks_below;
#[cfg(test)]
mod hooks_tools;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod init;
#[cfg(test)]
mod internet;
#[cfg(test)]
mod later_starts;
#[cfg(test)]
mod layer;
#[cfg(test)]
mod layer_crash;
#[cfg(test)]
mod leaks;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod loops;
#[cfg(test)]
mod malformed_requests;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_http;
#[cfg(test)]
mod mcp_typescript;
#[cfg(test)]
mod multi_step_escapes;
#[cfg(test)]
mod network;
#[cfg(test)]
mod one_door;
#[cfg(test)]
mod own_program;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod parity;
#[cfg(test)]
mod parity_fixture;
#[cfg(test)]
mod podman;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod postures;
mod postures_open;
#[cfg(test)]
mod proposals;
#[cfg(test)]
mod proposals_crash;
#[cfg(test)]
mod protected;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod regressions_003_004;
#[cfg(test)]
mod scan;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod seeded_secrets;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod swapped;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod test_timeouts;
#[cfg(test)]
mod testkit;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod workspaces;
