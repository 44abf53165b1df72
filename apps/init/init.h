// `bedplate` as the first process of an image: the machine around the appliance. The kernel starts
// /init; nothing else runs there, no shell, no other service.
//
//     mounts -> configuration -> modules -> network -> limits and hugepages -> the appliance
//
// Whatever is refused on the way is told on the console, and the machine ends as [crash] says.
#pragma once

namespace bedplate {

class Supervisor;

// Whether a process with these words is meant: it is called `init`, and is process 1, or was
// started by the kernel for a dump. Every other is an ordinary program.
bool is_init(int count, char** words) noexcept;

// Runs the machine to its end. `application` is told what an appliance tells (apps/boot): what a
// program adds that is an appliance of its own; nullptr: nothing. It is there to the end.
// Returns only where a dump's words make no sense.
int init_main(int count, char** words, Supervisor* application = nullptr);

}  // namespace bedplate
