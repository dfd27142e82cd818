#include "inference/multiple_choice/answer_tasks.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/threads.h"
#include "ops/host_target.h"

namespace tessera {
namespace {

/// Returns the mean accuracies of several tasks.
TaskScore average(const std::vector<TaskScore>& tasks) {
  TaskScore mean;
  for (const TaskScore& task : tasks) {
    mean.accuracy += task.accuracy / static_cast<double>(tasks.size());
    mean.accuracy_normalised += task.accuracy_normalised / static_cast<double>(tasks.size());
  }
  return mean;
}

/// Reads the questions of all files. Throws Error if two files give their questions the same task
/// by their names alone, such as test.jsonl in two folders: that would mix unrelated questions.
std::vector<Question> read_all(const std::vector<std::string>& files) {
  std::vector<Question> questions;
  std::map<std::string, std::string> file_of_task;  // of tasks that are named after a file
  for (const std::string& file : files) {
    std::vector<Question> added = read_questions(file);
    const std::string task = fs::path(file).stem().string();  // as read_questions() names it
    if (std::ranges::any_of(added,
                            [&](const Question& question) { return question.task == task; })) {
      const auto [entry, is_new] = file_of_task.try_emplace(task, file);
      if (!is_new) {
        throw Error(
            "{} and {} both give their questions the task {}; rename one, or give its questions a "
            "\"task\"",
            entry->second, file, task);
      }
    }
    questions.insert(questions.end(), std::make_move_iterator(added.begin()),
                     std::make_move_iterator(added.end()));
  }
  return questions;
}

}  // namespace

TaskAnswers answer_tasks(const TaskOptions& options) {
  const int threads = threads_or_all(options.threads, "--threads");
  TaskAnswers answers{.questions = read_all(options.files)};
  Runtime runtime(host_target(threads, Kernels::fast, options.device));
  LoadedModel model = load_model(options.checkpoint, threads);
  model.move_to(runtime);
  answers.checkpoint = model.checkpoint;
  answers.step = model.step;
  answers.context = model.config.data.context;

  const InterruptGuard interrupt;
  const Stopwatch watch;
  Progress progress;
  answers.scored = score_questions(
      model, answers.questions, options.scoring, runtime, [&](int64_t done, int64_t all) {
        const double fraction = static_cast<double>(done) / static_cast<double>(all);
        progress.show(
            Progress::bar(fraction, watch.seconds(), fmt::format("{} of {} choices", done, all)));
        return !InterruptGuard::requested();
      });
  progress.clear();
  answers.tasks = score_tasks(answers.questions, answers.scored);
  return answers;
}

std::string TaskAnswers::text() const {
  const auto percent = [](double share, double error) {
    return fmt::format("{:.1f} ± {:.1f}", 100 * share, 100 * error);
  };
  Table table({"task", "questions", "accuracy (%)", "length-normalised (%)"});
  for (const TaskScore& task : tasks) {
    table.add({task.task, std::to_string(task.questions), percent(task.accuracy, task.error),
               percent(task.accuracy_normalised, task.error_normalised)});
  }
  if (tasks.size() > 1) {
    const TaskScore mean = average(tasks);
    table.add({"average", "", fmt::format("{:.1f}", 100 * mean.accuracy),
               fmt::format("{:.1f}", 100 * mean.accuracy_normalised)});
  }
  std::string text = fmt::format("{} (step {})\n{}", checkpoint.string(), step, table.text());
  for (const TaskScore& task : tasks) {
    if (task.truncated == 0) continue;
    text += fmt::format(
        "{}: the prompt of {} questions was cut at its start to the model's {} tokens\n", task.task,
        task.truncated, context);
  }
  return text;
}

std::string TaskAnswers::json() const {
  nlohmann::ordered_json json{{"checkpoint", checkpoint.string()},
                              {"step", step},
                              {"tasks", nlohmann::ordered_json::array()}};
  for (const TaskScore& task : tasks) {
    json["tasks"].push_back({{"task", task.task},
                             {"questions", task.questions},
                             {"accuracy", task.accuracy},
                             {"accuracy_error", task.error},
                             {"accuracy_normalised", task.accuracy_normalised},
                             {"accuracy_normalised_error", task.error_normalised},
                             {"truncated", task.truncated}});
  }
  const TaskScore mean = average(tasks);
  json["average_accuracy"] = mean.accuracy;
  json["average_accuracy_normalised"] = mean.accuracy_normalised;
  return json.dump() + "\n";
}

std::string TaskAnswers::predictions() const {
  std::string lines;
  for (size_t i = 0; i < questions.size(); ++i) {
    const nlohmann::ordered_json line{{"task", questions[i].task},
                                      {"log_likelihoods", scored[i].log_likelihoods},
                                      {"chosen", scored[i].chosen},
                                      {"chosen_normalised", scored[i].chosen_normalised},
                                      {"answer", questions[i].answer}};
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace tessera
