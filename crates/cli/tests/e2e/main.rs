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
mod approvals;
#[cfg(test)]
#[path = "../attempts/mod.rs"]
mod attempts;
#[cfg(test)]
mod bound;
#[cfg(test)]
mod call_variables;
#[cfg(test)]
mod cards;
#[cfg(test)]
mod channels;
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
mod container_alike;
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
mod container_made;
#[cfg(test)]
mod container_network;
#[cfg(test)]
mod container_policy;
#[cfg(test)]
mod container_rules;
#[cfg(test)]
mod container_script;
#[cfg(test)]
mod container_secrets;
#[cfg(test)]
mod container_served;
#[cfg(test)]
mod container_sessions;
#[cfg(test)]
mod daemon;
#[cfg(test)]
mod daemon_answers;
#[cfg(test)]
mod daemon_browser;
#[cfg(test)]
mod daemon_ceiling;
#[cfg(test)]
mod daemon_cli;
#[cfg(test)]
mod daemon_crash;
#[cfg(test)]
mod daemon_crowd;
#[cfg(test)]
mod daemon_cut;
#[cfg(test)]
mod daemon_danger;
#[cfg(test)]
mod daemon_described;
#[cfg(test)]
mod daemon_drain;
#[cfg(test)]
mod daemon_ends;
#[cfg(test)]
mod daemon_entrances;
#[cfg(test)]
mod daemon_events;
#[cfg(test)]
mod daemon_files;
#[cfg(test)]
mod daemon_filled;
#[cfg(test)]
mod daemon_fuzz;
#[cfg(test)]
mod daemon_gone;
#[cfg(test)]
mod daemon_grpc;
#[cfg(test)]
mod daemon_grpc_fuzz;
#[cfg(test)]
mod daemon_grpc_more;
#[cfg(test)]
mod daemon_guesses;
#[cfg(test)]
mod daemon_guests;
#[cfg(test)]
mod daemon_http;
#[cfg(test)]
mod daemon_kept;
#[cfg(test)]
mod daemon_left;
#[cfg(test)]
mod daemon_load;
#[cfg(test)]
mod daemon_locked;
#[cfg(test)]
mod daemon_matrix;
#[cfg(test)]
mod daemon_memory;
#[cfg(test)]
mod daemon_own;
#[cfg(test)]
mod daemon_parts;
#[cfg(test)]
mod daemon_pauses;
#[cfg(test)]
mod daemon_place;
#[cfg(test)]
mod daemon_refused;
#[cfg(test)]
mod daemon_reload;
#[cfg(test)]
mod daemon_renew;
#[cfg(test)]
mod daemon_rights;
#[cfg(test)]
mod daemon_share;
#[cfg(test)]
mod daemon_socket;
#[cfg(test)]
mod daemon_standing;
#[cfg(test)]
mod daemon_tokens;
#[cfg(test)]
mod daemon_unit;
#[cfg(test)]
mod daemon_waits;
#[cfg(test)]
mod daemon_watch;
#[cfg(test)]
mod daemon_weight;
#[cfg(test)]
mod daemon_workspaces;
#[cfg(test)]
mod docker;
#[cfg(test)]
mod environment;
#[cfg(test)]
mod exec_server;
#[cfg(test)]
mod exits;
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
mod guarded_reads;
#[cfg(test)]
mod held;
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
mod hostile;
#[cfg(test)]
mod identity;
#[cfg(test)]
mod init;
#[cfg(test)]
mod internet;
#[cfg(test)]
mod later_starts;
#[cfg(test)]
mod leaks;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod listening;
#[cfg(test)]
mod listening_tls;
#[cfg(test)]
mod loops;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_http;
#[cfg(test)]
mod mcp_typescript;
#[cfg(test)]
mod mutants;
#[cfg(test)]
mod network;
#[cfg(test)]
mod old_bugs;
#[cfg(test)]
mod own_program;
#[cfg(test)]
mod packaging;
#[cfg(test)]
mod parity;
#[cfg(test)]
mod patience;
#[cfg(test)]
mod podman;
#[cfg(test)]
mod policy;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod postures;
#[cfg(test)]
mod protected;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod scan;
#[cfg(test)]
mod secrets;
#[cfg(test)]
mod seeded;
#[cfg(test)]
mod served;
#[cfg(test)]
mod signals;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod telemetry;
#[cfg(test)]
mod terminal;
#[cfg(test)]
mod testkit;
#[cfg(test)]
mod twins;
#[cfg(test)]
mod tx;
#[cfg(test)]
mod tx_crash;
#[cfg(test)]
mod watch;
#[cfg(test)]
mod work;
#[cfg(test)]
mod workspaces;
