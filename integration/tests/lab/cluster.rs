//! Pods that real kubelets start through the plugin and the server under test: `make test-cluster`.

mod api_server;
mod broken;
mod chart;
mod cnitool;
mod control_plane;
mod daemon_sets;
mod day_two;
mod deployment;
mod elsewhere;
mod events;
mod gateways;
mod held;
mod helm;
mod names;
mod network;
mod node_identity;
mod node_ports;
mod node_services;
mod own_node;
mod pods;
mod restarts;
mod rights;
mod runtimes;
mod services;
mod static_pods;
mod support;
