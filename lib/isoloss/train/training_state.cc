#include "isoloss/train/training_state.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "isoloss/base/error.h"
#include "isoloss/expert_parallel/collectives.h"
#include "isoloss/expert_parallel/replica_check.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::train {
namespace {

using checkpoint::Checkpoint;
using checkpoint::DataType;
using checkpoint::TensorInfo;
using expert_parallel::Mesh;

constexpr std::string_view kExpertBias = "expert_bias";
constexpr std::string_view kAmaxHistory = "amax_history";
constexpr std::string_view kSteps = "adamw.steps";
constexpr std::string_view kBytesByPair = "exchange.bytes_by_pair";

/// Describes one FP32 tensor as this process holds it.
struct LocalTensor {
  TensorInfo info;  // of the whole
  std::span<float> values;
  Memory& memory = kHostMemory;
  size_t first_element = 0;

  HostRows<float> OnHost() const {
    return {MatrixView<const float>(values.data(), 1, values.size()), memory};
  }
};

/// Returns flat views with one row per leading extent, so that experts are
/// whole runs of rows.
std::vector<LocalTensor> LocalTensors(const TrainingState& state,
                                      size_t experts) {
  const std::span<model::Parameter> parameters = state.parameters.parameters();
  std::vector<LocalTensor> tensors;
  const auto add = [&](const char* group, auto values_of) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const model::Parameter& parameter = parameters[i];
      Matrix<float>& values = values_of(i);
      ISOLOSS_ASSERT(values.size() == parameter.values.size());
      LocalTensor tensor = {
          .info = {.name = group + parameter.name, .shape = parameter.shape},
          .values = {values.data(), values.size()},
          .memory = values.memory(),
          .first_element = parameter.first_element};
      if (parameter.of_experts) tensor.info.shape[0] = experts;
      tensors.push_back(std::move(tensor));
    }
  };
  ISOLOSS_ASSERT(state.adamw.first_moments().size() == parameters.size());
  const auto moments = [](std::span<Matrix<float>> all) {
    return [all](size_t i) -> Matrix<float>& { return all[i]; };
  };
  add("weights.",
      [&](size_t i) -> Matrix<float>& { return parameters[i].values; });
  add("exp_avg.", moments(state.adamw.first_moments()));
  add("exp_avg_sq.", moments(state.adamw.second_moments()));
  const auto add_replicated = [&](std::string_view name,
                                  MatrixView<float> values) {
    if (values.empty()) return;
    ISOLOSS_ASSERT(values.stride() == values.cols());
    tensors.push_back(
        {.info = {.name = std::string(name),
                  .shape = {values.rows(), values.cols()}},
         .values = {values.data(), values.rows() * values.cols()}});
  };
  add_replicated(kExpertBias, state.expert_bias);
  add_replicated(kAmaxHistory, state.amax_history);
  return tensors;
}

bool AllFinite(const LocalTensor& tensor, Executor& executor) {
  if (!tensor.memory.is_host()) {
    // FP64 has room for squares of FP32 numbers, and for their sum.
    return std::isfinite(kernels::SumOfSquares(tensor.values, executor));
  }
  uint32_t largest = 0;
  for (const float value : tensor.values) {
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  }
  return largest < 0x7f800000u;
}

/// Returns the index of the first tensor that is not finite in any process;
/// tensors.size() if all are finite.
size_t FirstNonFinite(std::span<const LocalTensor> tensors, Executor& executor,
                      Mesh& mesh) {
  size_t first = 0;
  while (first < tensors.size() && AllFinite(tensors[first], executor)) ++first;
  return tensors.size() - expert_parallel::Vote(mesh, tensors.size() - first);
}

/// There is one count per ordered pair of ranks.
TensorInfo PairsInfo(size_t count) {
  size_t ranks = 0;
  while (ranks * ranks < count) ++ranks;
  ISOLOSS_ASSERT(ranks * ranks == count);
  return {.name = std::string(kBytesByPair),
          .type = DataType::kI64,
          .shape = {ranks, ranks}};
}

std::vector<TensorInfo> InfosOf(std::span<const LocalTensor> tensors,
                                size_t pairs) {
  std::vector<TensorInfo> infos;
  for (const LocalTensor& tensor : tensors) infos.push_back(tensor.info);
  infos.push_back(
      {.name = std::string(kSteps), .type = DataType::kI64, .shape = {1}});
  if (pairs > 0) infos.push_back(PairsInfo(pairs));
  return infos;
}

/// Runs the work of process 0, so that it can fail there while the remaining
/// processes wait.
class FirstProcess {
 public:
  FirstProcess(const std::filesystem::path& checkpoints, Mesh& mesh)
      : checkpoints_(checkpoints), mesh_(mesh) {}

  template <typename Work>
  void Try(const Work& work) {
    if (mesh_.process() != 0 || error_ != nullptr) return;
    try {
      work();
    } catch (const Error& error) {
      error_ = std::current_exception();
      code_ = static_cast<uint64_t>(error.kind()) + 1;
    } catch (...) {
      error_ = std::current_exception();
      code_ = static_cast<uint64_t>(ErrorKind::kIo) + 1;
    }
  }

  /// Throws in all processes if process 0 failed.
  void Agree(int64_t step) {
    const uint64_t code = expert_parallel::Vote(mesh_, code_);
    if (code == 0) return;
    if (error_ != nullptr) std::rethrow_exception(error_);
    ThrowError(static_cast<ErrorKind>(code - 1),
               "{}: process 0 can't write the checkpoint of step {}. Its "
               "message says why.",
               checkpoints_.string(), step);
  }

 private:
  const std::filesystem::path& checkpoints_;
  Mesh& mesh_;
  std::exception_ptr error_;
  uint64_t code_ = 0;  // its kind + 1
};

/// Returns the whole tensor, of which `mine` is this process's part; `scratch`
/// holds it if several processes hold its experts.
std::span<const float> Gathered(MatrixView<const float> mine, size_t size,
                                Mesh& mesh, Matrix<float>& scratch) {
  if (mine.cols() == size) return {mine.data(), size};
  scratch.ResizeUninitialized(1, size);
  expert_parallel::GatherExperts(mesh, mine, scratch.view());
  return {scratch.data(), size};
}

/// Reads the whole tensor into `scratch`, unless its place takes it as it is.
/// Keeps this process's part.
void Read(const Checkpoint& checkpoint, const LocalTensor& tensor,
          Matrix<float>& scratch) {
  const size_t size = tensor.info.bytes() / sizeof(float);
  if (tensor.values.size() == size && tensor.memory.is_host()) {
    checkpoint.Read(tensor.info.name, tensor.info.shape, tensor.values);
    return;
  }
  scratch.ResizeUninitialized(1, size);
  checkpoint.Read(tensor.info.name, tensor.info.shape,
                  std::span(scratch.data(), size));
  ISOLOSS_ASSERT(tensor.first_element + tensor.values.size() <= size);
  tensor.memory.CopyFromHost(scratch.data() + tensor.first_element,
                             tensor.values.size_bytes(), tensor.values.data());
}

/// Throws FormatError unless the checkpoint's tensors are exactly `wanted`.
void CheckFits(const Checkpoint& checkpoint,
               std::span<const TensorInfo> wanted) {
  const std::span<const TensorInfo> found = checkpoint.tensors();
  const auto has = [](std::span<const TensorInfo> list,
                      const TensorInfo& info) {
    return std::any_of(list.begin(), list.end(), [&](const TensorInfo& other) {
      return other.name == info.name && other.type == info.type &&
             other.shape == info.shape;
    });
  };
  const auto fail = [&](const TensorInfo& info, const char* what) {
    ThrowError(ErrorKind::kFormat,
               "{}: tensor `{}` of shape [{}] {}. Use a checkpoint of the same "
               "experiment.",
               checkpoint.folder().string(), info.name,
               fmt::join(info.shape, ", "), what);
  };
  for (const TensorInfo& info : wanted) {
    if (!has(found, info)) fail(info, "is needed, but not in it");
  }
  for (const TensorInfo& info : found) {
    if (!has(wanted, info)) fail(info, "has no place in this run");
  }
}

}  // namespace

std::string FirstNonFiniteTensor(const TrainingState& state, Mesh& mesh) {
  const std::vector<LocalTensor> tensors = LocalTensors(state, /*experts=*/1);
  const size_t first = FirstNonFinite(tensors, state.executor, mesh);
  return first < tensors.size() ? tensors[first].info.name : "";
}

uint64_t SaveTrainingState(int64_t step, const model::ModelConfig& config,
                           TrainingState state, Mesh& mesh,
                           const std::filesystem::path& checkpoints,
                           std::map<std::string, std::string> facts) {
  const std::vector<LocalTensor> tensors =
      LocalTensors(state, config.num_experts);
  const size_t bad = FirstNonFinite(tensors, state.executor, mesh);
  if (bad < tensors.size()) {
    ThrowError(ErrorKind::kFormat,
               "{}: after step {} tensor `{}` holds a NaN or an infinity, so "
               "it is not saved. The newest checkpoint stays the one before.",
               checkpoints.string(), step, tensors[bad].info.name);
  }

  std::optional<checkpoint::Writer> writer;
  FirstProcess first(checkpoints, mesh);
  first.Try([&] {
    writer.emplace(checkpoints, step,
                   InfosOf(tensors, state.bytes_by_pair.size()),
                   std::move(facts));
  });
  first.Agree(step);  // most disks that are full are found here
  Matrix<float> scratch;
  for (const LocalTensor& tensor : tensors) {
    const HostRows<float> mine = tensor.OnHost();
    const std::span<const float> whole = Gathered(
        mine.view(), tensor.info.bytes() / sizeof(float), mesh, scratch);
    first.Try([&] { writer->Add(whole); });
  }
  std::array<uint64_t, 1> digest = {};
  first.Try([&] {
    writer->Add(std::array{state.adamw.steps()});
    if (!state.bytes_by_pair.empty()) writer->Add(state.bytes_by_pair);
    digest[0] = writer->Commit();
  });
  if (mesh.process() == 0) writer.reset();
  first.Agree(step);
  return expert_parallel::Vote(mesh, digest[0]);  // only process 0 has one
}

void LoadTrainingState(const Checkpoint& checkpoint,
                       const model::ModelConfig& config, TrainingState state,
                       Mesh& mesh) {
  expert_parallel::CheckReplicas(mesh, checkpoint.state_digest(),
                                 "checkpoints to go on from");
  const std::vector<LocalTensor> tensors =
      LocalTensors(state, config.num_experts);
  const size_t ranks = mesh.config().topology.ranks;
  const auto is_pairs = [](const TensorInfo& info) {
    return info.name == kBytesByPair;
  };
  const auto pairs = std::find_if(checkpoint.tensors().begin(),
                                  checkpoint.tensors().end(), is_pairs);
  const bool counted =
      pairs != checkpoint.tensors().end() && !pairs->shape.empty();
  const size_t counted_ranks = counted ? pairs->shape.front() : 0;
  CheckFits(checkpoint, InfosOf(tensors, counted_ranks * counted_ranks));
  // Counts between different ranks tell nothing of these ranks.
  const bool has_pairs = counted_ranks == ranks;
  std::vector<int64_t> bytes_by_pair(has_pairs ? ranks * ranks : 0);

  std::array<int64_t, 1> steps = {};
  checkpoint.Read(kSteps, std::array<size_t, 1>{1}, steps);
  if (has_pairs) {
    checkpoint.Read(kBytesByPair, std::array{ranks, ranks}, bytes_by_pair);
  }
  Matrix<float> scratch;
  state.adamw.Restore(steps[0]);
  for (const LocalTensor& tensor : tensors) Read(checkpoint, tensor, scratch);
  state.bytes_by_pair = std::move(bytes_by_pair);
}

}  // namespace isoloss::train
