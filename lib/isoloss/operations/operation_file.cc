#include "isoloss/operations/operation_file.h"

#include <fmt/format.h>

#include <set>

#include "isoloss/base/error.h"
#include "isoloss/base/files.h"
#include "isoloss/base/printable.h"
#include "isoloss/hdf5/sealed_file.h"
#include "isoloss/operations/mapping.h"

namespace isoloss::operations {
namespace {

[[noreturn]] void Reject(const std::string& where, const std::string& found,
                         const std::string& rule) {
  ThrowError(ErrorKind::kFormat,
             "{}: {}, but in a file of operations it is {} "
             "(docs/check-tensors.md). Record the step again.",
             where, found, rule);
}

template <typename T>
T Attribute(const hdf5::Object& object, const char* name,
            const std::string& where) {
  const hdf5::Values* values = object.Attribute(name);
  if (values == nullptr) {
    Reject(where, fmt::format("attribute {} is missing", name), "there");
  }
  if (!values->is_read || !values->IsScalar() ||
      values->type != hdf5::ValueTypeOf<T>()) {
    Reject(where, fmt::format("attribute {} is {}", name, values->type_name),
           fmt::format("one {}", hdf5::Describe(hdf5::ValueTypeOf<T>())));
  }
  return hdf5::One<T>(*values);
}

int64_t Count(const hdf5::Object& root, const char* name, int64_t least,
              const std::string& path) {
  const auto value = Attribute<int64_t>(root, name, path);
  if (value < least || value > hdf5::kMaxCounted) {
    Reject(path, fmt::format("attribute {} is {}", name, value),
           fmt::format("from {} to 2^53", least));
  }
  return value;
}

template <typename T>
Array<T> ArrayOf(const hdf5::Values& values) {
  Array<T> array;
  for (const uint64_t extent : values.extent) {
    array.extent.push_back(static_cast<size_t>(extent));
  }
  array.values = hdf5::Copied<T>(values);
  return array;
}

std::string OptionalText(const hdf5::Object& root, const char* name,
                         const std::string& path) {
  return root.Attribute(name) == nullptr
             ? ""
             : Attribute<std::string>(root, name, path);
}

void AddTensor(const std::string& name, const hdf5::Object& dataset,
               const std::string& where, Operation& operation) {
  const std::string place = where + ": " + Printable(name);
  const hdf5::Values& values = dataset.values;
  if (dataset.is_group || !values.is_read) {
    Reject(place, dataset.is_group ? "it is a group" : values.type_name,
           "32-bit float, signed 64-bit or unsigned 8-bit integer");
  }
  if (values.type == hdf5::ValueType::kFloat) {
    Floats& floats = operation.floats[name] = ArrayOf<float>(values);
    floats.type = Attribute<std::string>(dataset, "dtype", place);
    floats.placements = OptionalText(dataset, "placements", place);
  } else if (values.type == hdf5::ValueType::kInt64) {
    operation.integers[name] = ArrayOf<int64_t>(values);
  } else if (values.type == hdf5::ValueType::kUint8) {
    Codes& codes = operation.codes[name] = ArrayOf<uint8_t>(values);
    if (dataset.Attribute("format") != nullptr) {
      codes.type = Attribute<std::string>(dataset, "format", place);
    }
  } else {
    Reject(place, values.type_name,
           "32-bit float, signed 64-bit or unsigned 8-bit integer");
  }
}

Operation OperationOf(const hdf5::Object& group, const std::string& where) {
  if (!group.is_group) Reject(where, "it is a dataset", "a group");
  Operation operation;
  operation.type = Attribute<std::string>(group, "type", where);
  operation.module = Attribute<std::string>(group, "module", where);
  for (const auto& [name, values] : group.attributes) {
    if (!values.is_read || !values.IsScalar()) continue;
    if (values.type == hdf5::ValueType::kString) {
      operation.texts[name] = hdf5::One<std::string>(values);
    } else if (values.type == hdf5::ValueType::kDouble) {
      operation.numbers[name] = hdf5::One<double>(values);
    } else if (values.type == hdf5::ValueType::kInt64) {
      operation.numbers[name] = static_cast<double>(hdf5::One<int64_t>(values));
    } else if (values.type == hdf5::ValueType::kBool) {
      operation.numbers[name] = hdf5::One<bool>(values) ? 1.0 : 0.0;
    }
  }
  for (const auto& [name, dataset] : group.members) {
    AddTensor(name, dataset, where, operation);
  }
  SpreadCodes(operation);
  return operation;
}

std::optional<double> OptionalNumber(const hdf5::Object& root, const char* name,
                                     const std::string& path) {
  if (root.Attribute(name) == nullptr) return std::nullopt;
  return Attribute<double>(root, name, path);
}

/// Adds where the rank stands in a parallel layout. Without a word of it each
/// rank has a part of the batch.
void AddPlace(const hdf5::Object& root, const std::string& path,
              OperationFile& file) {
  const auto count = [&](const char* name, int64_t least, int64_t otherwise) {
    return root.Attribute(name) == nullptr ? otherwise
                                           : Count(root, name, least, path);
  };
  file.data_rank = count("data_rank", 0, file.rank);
  file.data_ranks = count("data_ranks", 1, file.ranks);
  file.mesh = OptionalText(root, "mesh", path);
  file.coordinate = OptionalText(root, "coordinate", path);
}

void CheckPlace(const OperationFile& file, const char* name, int64_t place,
                int64_t places) {
  if (place < places) return;
  Reject(file.path, fmt::format("{} is {}", name, place),
         fmt::format("less than {}s, which is {}", name, places));
}

/// Returns all but the operations.
OperationFile HeadOf(const hdf5::Object& root, const std::string& path) {
  OperationFile file = {.path = path};
  const auto version = Attribute<int64_t>(root, "operations_version", path);
  if (version != kOperationsVersion) {
    Reject(path, fmt::format("operations_version is {}", version),
           std::to_string(kOperationsVersion));
  }
  file.run = Attribute<std::string>(root, "run", path);
  file.step = Count(root, "step", 1, path);
  file.rank = Count(root, "rank", 0, path);
  file.ranks = Count(root, "ranks", 1, path);
  AddPlace(root, path, file);
  CheckPlace(file, "rank", file.rank, file.ranks);
  CheckPlace(file, "data_rank", file.data_rank, file.data_ranks);
  file.arm = OptionalText(root, "arm", path);
  file.recipe = OptionalText(root, "recipe", path);
  if (root.Attribute("seed") != nullptr) {
    file.seed = Count(root, "seed", 0, path);
  }
  if (root.Attribute("tokens") != nullptr) {
    file.tokens = Count(root, "tokens", 0, path);
  }
  if (root.Attribute("recording") != nullptr) {
    file.recording = Attribute<int64_t>(root, "recording", path);
  }
  file.loss_nats = OptionalNumber(root, "loss_nats", path);
  file.grad_norm = OptionalNumber(root, "grad_norm", path);
  file.initial_weights_digest =
      OptionalText(root, "initial_weights_digest", path);
  file.unrecorded = OptionalText(root, "unrecorded", path);
  file.contradictions = OptionalText(root, "contradictions", path);
  return file;
}

}  // namespace

OperationFile OperationsOf(const hdf5::Object& root, const std::string& path) {
  OperationFile file = HeadOf(root, path);
  const hdf5::Object* operations = root.Member("operations");
  if (operations == nullptr || !operations->is_group) {
    Reject(path, "group /operations is missing", "there");
  }
  for (size_t i = 0; i < operations->members.size(); ++i) {
    const std::string name = fmt::format("{:06}", i);
    const std::string where = fmt::format("{}: /operations/{}", path, name);
    const hdf5::Object* group = operations->Member(name);
    if (group == nullptr) {
      Reject(where,
             fmt::format("it is missing among {}", operations->members.size()),
             "there: groups are numbered from 000000 on");
    }
    file.operations.push_back(OperationOf(*group, where));
  }
  DecodeStates(file);
  CheckExtents(file);
  return file;
}

std::vector<std::byte> ReadWholeFile(const std::filesystem::path& path) {
  const Descriptor file = OpenFile(path);
  const uint64_t size = FileSize(file, path);
  if (size > kMaxOperationBytes) {
    ThrowError(ErrorKind::kFormat,
               "{}: has {} bytes, but a file of tensors has at most {}. Record "
               "fewer modules at a time.",
               path.string(), size, kMaxOperationBytes);
  }
  std::vector<std::byte> bytes(size);
  ReadAll(file, 0, bytes, path);
  return bytes;
}

OperationFile ReadOperations(const std::filesystem::path& path) {
  if (path.extension() == ".toml") return ReadMapping(path);
  std::vector<std::byte> bytes = ReadWholeFile(path);
  const size_t size = bytes.size();
  const hdf5::Tree tree(bytes, path.string());
  bytes = {};
  hdf5::ReadCharge charge =
      hdf5::Charge(path.string(), size, tree.value_bytes());
  OperationFile file = OperationsOf(tree.root(), path.string());
  file.charges.push_back(std::move(charge));
  return file;
}

}  // namespace isoloss::operations
