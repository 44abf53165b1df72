#include "apps/services/listeners.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pinned_pool/pinned_pool.h"
#include "platform/assert.h"
#include "platform/environment.h"
#include "platform/text_words.h"
#include "platform/user.h"

namespace bedplate {
namespace {

constexpr int kFirstActivatedFd = 3;  // SD_LISTEN_FDS_START
constexpr int kActivatedMax = 8;

long number_in_environment(const char* name) {
  const char* text = environment_text(name);
  long number = -1;
  return text != nullptr && parse_number(text, &number) ? number : -1;
}

int socket_option(int fd, int option) {
  int value = 0;
  socklen_t bytes = sizeof value;
  return getsockopt(fd, SOL_SOCKET, option, &value, &bytes) == 0 ? value : 0;
}

// Describes `fd` if it is no listening stream socket; nullptr: it is one.
const char* wrong_kind(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return "closed";
  if (S_ISREG(status.st_mode)) {
    // If no socket was passed, segment 0, which is made before main, may have this descriptor.
    const PinnedPool& pool = process_pool();
    const bool is_ours = pool.segment_count() > 0 && pool.segment(0).memfd == fd &&
                         pool.segment(0).device == status.st_dev &&
                         pool.segment(0).inode == status.st_ino;
    return is_ours ? "closed" : "a file or memory";
  }
  if (!S_ISSOCK(status.st_mode)) return "not a socket";
  if (socket_option(fd, SO_TYPE) != SOCK_STREAM) return "not a stream socket";
  return socket_option(fd, SO_ACCEPTCONN) != 0 ? nullptr : "a socket that does not listen";
}

}  // namespace

Error Listeners::activation_error(const char* answer) const {
  return error_while("taking over activated sockets")
      .set_answer("%s", answer)
      .set_cure("start it by socket activation (a systemd socket unit), or remove "
                "\"activation:\" from %s",
                key_.c_str());
}

bool Listeners::is_valid() const noexcept {
  std::set<int> numbers;
  for (const std::vector<Fd>& place : sockets_) {
    for (const Fd& fd : place) {
      if (!fd.is_open() || !numbers.insert(fd.number()).second) return false;
    }
  }
  return paths_.empty() || (!sockets_.empty() && paths_.size() <= sockets_[0].size());
}

Listeners::~Listeners() {
  BP_ASSERT(is_valid());
  for (const std::string& path : paths_) unlink(path.c_str());
}

void Listeners::take_activated(std::vector<Error>* problems) {
  BP_KEEPS_VALID(*this);
  if (number_in_environment("LISTEN_PID") != getpid()) {
    problems->push_back(activation_error("LISTEN_PID does not name this process"));
    return;
  }
  const long count = number_in_environment("LISTEN_FDS");
  if (count < 1 || count > kActivatedMax) {
    problems->push_back(activation_error("LISTEN_FDS is not a number from 1 to 8"));
    return;
  }
  for (int fd = kFirstActivatedFd; fd < kFirstActivatedFd + count; ++fd) {
    if (const char* kind = wrong_kind(fd); kind != nullptr) {
      char answer[128];
      std::snprintf(answer, sizeof answer,
                    "descriptor %d should be a listening stream socket, but is %s", fd, kind);
      problems->push_back(activation_error(answer));
      return;
    }
    if (local_only_.is_asked() && !is_local_socket(fd)) {
      problems->push_back(error_while("taking over activated sockets for %s", key_.c_str())
                              .set_answer("descriptor %d: %s", fd, local_only_.answer.c_str())
                              .set_cure("%s", local_only_.cure.c_str()));
      return;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockets_[0].emplace_back(fd);
  }
}

Result<void> Listeners::give_file(const std::string& path) const {
  if (!access_.is_restricted) return {};
  uid_t user = own_user();
  if (user == 0 && !access_.user.empty()) {
    BP_TRY_ASSIGN(user, find_user_id(access_.user.c_str()));
  }
  auto group = static_cast<gid_t>(-1);
  if (!access_.group.empty()) {
    BP_TRY_ASSIGN(group, find_group_id(access_.group.c_str()));
  }
  const mode_t mode = access_.group.empty() ? 0600 : 0660;
  if (chown(path.c_str(), user, group) == 0 && chmod(path.c_str(), mode) == 0) return {};
  return error_from_errno("giving %s to the user %u and the group %s", path.c_str(), user,
                          access_.group.empty() ? "of this process" : access_.group.c_str())
      .set_cure("run as root, or name a group that the user is in: %s", key_.c_str());
}

// Returns a socket for each place, or for the first one alone.
Result<std::vector<Fd>> Listeners::open_at(const SocketAddress& address) const {
  if (address.kind != SocketAddress::Kind::kUnix) return listen_together(address, place_count_);
  std::vector<Fd> all;
  BP_TRY_ASSIGN(Fd only, listen_at(address));
  all.push_back(std::move(only));
  return all;
}

void Listeners::open(const std::vector<SocketAddress>& addresses, std::vector<Error>* problems) {
  BP_ASSERT(problems != nullptr);
  BP_ASSERT(sockets_.empty() && paths_.empty());
  sockets_.resize(place_count_);
  for (const SocketAddress& address : addresses) {
    // The plan has refused addresses that others can reach; a passed socket is checked when it is
    // taken.
    BP_ASSERT(!local_only_.is_asked() || address.kind == SocketAddress::Kind::kActivation ||
              is_local_address(address));
    if (address.kind == SocketAddress::Kind::kActivation) {
      take_activated(problems);
      continue;
    }
    auto opened = open_at(address);
    if (!opened.ok()) {
      problems->push_back(opened.error());
      continue;
    }
    std::vector<Fd> all = opened.take();
    for (size_t place = 0; place < all.size(); ++place) {
      sockets_[place].push_back(std::move(all[place]));
    }
    if (address.kind != SocketAddress::Kind::kUnix) continue;
    paths_.push_back(address.path);
    if (auto given = give_file(address.path); !given.ok()) problems->push_back(given.error());
  }
  BP_ASSERT(is_valid());
}

const std::vector<SocketAddress>& listened_addresses(const Configuration& configuration,
                                                     const std::vector<SocketAddress>& addresses,
                                                     const std::vector<SocketAddress>& in_image) {
  return configuration.is_first_process && !in_image.empty() ? in_image : addresses;
}

const SocketAddress& address_of_socket(const std::vector<SocketAddress>& addresses, size_t socket,
                                       size_t socket_count) {
  BP_ASSERT(socket < socket_count && socket_count >= addresses.size());
  const auto is_passed = [](const SocketAddress& each) {
    return each.kind == SocketAddress::Kind::kActivation;
  };
  const auto passed = std::find_if(addresses.begin(), addresses.end(), is_passed);
  const auto first = static_cast<size_t>(passed - addresses.begin());
  const size_t more = socket_count - addresses.size();
  return addresses[socket <= first ? socket : std::max(first, socket - std::min(socket, more))];
}

std::vector<std::vector<Listeners>> open_listeners(const std::vector<ServiceNeeds>& services,
                                                   bool with_activation,
                                                   std::vector<Error>* problems) {
  std::vector<std::vector<Listeners>> all;
  for (const ServiceNeeds& service : services) {
    std::vector<Listeners>& own = all.emplace_back();
    for (const ListenNeed& need : service.listens) {
      std::vector<SocketAddress> addresses = need.addresses;
      if (!with_activation) {
        std::erase_if(addresses, [](const SocketAddress& address) {
          return address.kind == SocketAddress::Kind::kActivation;
        });
      }
      own.emplace_back(need.key + " in [" + service.name + "]", need.local_only, need.access,
                       need.place_count())
          .open(addresses, problems);
    }
    BP_ASSERT(own.size() == service.listens.size());
  }
  return all;
}

}  // namespace bedplate
