#pragma once

namespace CLI {  // NOLINT(readability-identifier-naming): the library's
class App;
}

namespace tessera {

// Each function adds one subcommand of the program, with a callback that does its work. A callback
// throws CommandStatus to end the program with a status other than 0.

void add_prepare_command(CLI::App& app);
void add_train_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_explain_command(CLI::App& app);
void add_verify_command(CLI::App& app);
void add_checkpoint_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_plot_command(CLI::App& app);
void add_trace_command(CLI::App& app);
void add_device_command(CLI::App& app);
void add_completion_command(CLI::App& app);
void add_manual_command(CLI::App& app);

/// Thrown by a command to end the program with this exit status.
struct CommandStatus {
  int value = 0;
};

}  // namespace tessera
