# The sources of each target. Every source is named: a file that is not here is not part of
# Bedplate.

PLATFORM := assert build_id call_stack capabilities cgroup change_user closing_thread cpu \
            environment failed_calls file forbidden_calls hugepage log log_component log_limit \
            memfd numa parallel process_pulse progress random_bytes recent_lines result sanitizer \
            secret_file serial_line standard_error standard_streams supervisor surplus_hugepages \
            terminal_bar thread_calls thread_stack units user
PINNED_POOL := adopt_segment audit boot_segment fork_rule memory_error no_way_back pinned_pool \
               plan seal seccomp_filter shared_segments take_error taken_pages \
               $(addprefix join/,join_connections join_protocol join_roster join_server \
                 join_socket join_strangers joined_pool membership owner_life process_terms)
ALLOC := added_heap block_ledger boot_growth buffer_pool_datapath exhaustion fork_mark heap_owner \
         heap_report interception_check interception_decision keyed_cache_datapath metadata_zone pool_resource \
         support_level \
         $(if $(SANITIZED),sanitizer_heap,bad_pointer child_heap child_libc confined_mimalloc copied_heap \
           heap_walk ordinary_memory thread_heaps)
VERBS := peer_state verbs_wire \
         $(addprefix device/,device_quirks queue_pair verbs_device verbs_ports window_probe) \
         $(addprefix connect/,connection_manager device_events link_carriers link_connector \
           link_handshake) \
         $(addprefix channel/,datagram_queue datagram_queue_datapath verbs_endpoint \
           verbs_endpoint_datapath verbs_endpoint_receive_datapath verbs_provider \
           verbs_provider_datapath verbs_shape) \
         joined/joined_verbs
SHM := bell_watch borrower_datapath eager_stock_datapath endpoint_table exposures \
       fifo_receiver_datapath futex_bell group_keeper group_layout group_segment group_shape \
       group_terms inbound_boxes_datapath lender member_source membership_view \
       operation_table_datapath outgoing_way_datapath peer_copy shm_dispatch_datapath shm_endpoint \
       shm_endpoint_datapath shm_members shm_place shm_poll_datapath shm_provider
TRANSPORT := connecting datagram_address doorbell endpoint epoll/epoll_sockets event_loop \
             file_thread files files_datapath ip_address joined_process locking_provider \
             message_answers_datapath message_names messenger netlink network_watch polled_limits registration \
             self/self_provider $(addprefix shm/,$(SHM)) \
             single_copy single_copy/cma single_copy/cma_datapath single_copy/device \
             single_copy/guarded_copy_datapath single_copy/knem single_copy/knem_datapath \
             single_copy/xpmem single_copy/xpmem_datapath slow_sends socket_address stall_watch stream_server \
             stream_session_datapath stream_sockets timer_queue udp/udp_descriptor \
             udp/udp_socket udp/udp_socket_datapath uring/page_pin uring/polled_files \
             uring/uring_device uring/uring_files uring/uring_sockets watch \
             $(addprefix nvme/,nvme_controller nvme_device nvme_drive nvme_drive_queue \
               nvme_io_datapath nvme_problem nvme_queue_datapath nvme_queue_pair_datapath) \
             $(addprefix vfio/,pci_device vfio_container vfio_device vfio_pool vfio_preflight) \
             $(addprefix verbs/,$(VERBS))
DPDK := $(addprefix eal/,drivers eal eal_log eal_memory pci_drivers \
          vfio_group) \
        $(addprefix port/,local_checksum_datapath mbuf_pool memif_gate memif_link port port_device \
          port_queue_datapath queue_wake xdp_sockets) \
        $(addprefix net/,datagram_sender_datapath discovery_datapath frame_sender_datapath \
          group_reports_datapath icmp_datapath memberships memberships_datapath neighbours \
          neighbours_datapath net_counters net_stack net_stack_datapath packet_datapath path_mtus \
          port_datagram_socket port_datagram_socket_datapath port_shared port_shared_datapath \
          routes_datapath socket_table socket_table_datapath waiting_frames \
          waiting_frames_datapath)
TLS := tls_credentials tls_failures tls_library tls_session tls_stream
# The part of verbs that the configuration and the counters need everywhere.
VERBS_WORDS := transport/verbs/peer_state.cc transport/verbs/verbs_wire.cc
BOOT := appliance appliance_memory appliance_plan appliance_signals appliance_user boot_plan \
        configuration configuration_checks \
        configuration_reader configuration_table configuration_tables configuration_values \
        configuration_words connection_thread core_watch control_methods counter_signs counters_file counters_reader \
        counters_snapshot json_text listeners loaded_configuration messages_plan messaging \
        name_lock needed_calls openings outsiders peers planned_datagrams planned_files pool_counters ports_part \
        preflight runtime_counters service_calls service_context service_drains service_plan shard \
        shard_group shard_messenger stats_json supervision tls_part toml_reader trace_snapshot
INIT := core_dump crash drill init kernel_command_line machine modules mounts network \
        rdma_link watchdog
COMMANDS := asked_line check_command counter_changes counter_text counters_command ctl_command doctor_command \
            explain_plan control_c fifo_question files_c group_parts init_part json_output \
            judgement key_findings keys_command machine_findings mend perf_command plan_command \
            program remote_counters run_command service_c signs sockets_c stats_command stats_text \
            top_command top_history top_json \
            top_model top_screen top_signs top_terminal top_text top_watch trace_command watch_stats
PERF := perf_client perf_report perf_server perf_shm_side perf_side perf_verbs register_report
PORTS := open_port port_counters_table port_service port_settings
CONTROL := control_client control_line control_request control_service control_session counter_words \
           runtime_methods
HTTP := event_text http_request http_service http_session lines metrics_text status_page
KVD := kv_service session_datapath stats_datapath
TSRELAY := fec_receiver_datapath fec_sender_datapath leg_merge_datapath local_reader_datapath \
           output_group_datapath pacer_datapath psi_datapath recording recording_datapath \
           recording_files recording_thread relay_methods relay_service relay_settings relay_stream relay_stream_datapath rtp_datapath test_picture relay_memberships \
           ts_generator ts_inspector_datapath ts_tables_datapath
BLOCKD := block_methods block_server block_service connection_datapath nbd_negotiation \
          volume_datapath volume_shards \
          stores/ceph_cluster stores/file_store stores/nvme_drives stores/nvme_store \
          stores/rbd_images stores/rbd_mapping stores/store_queue_datapath

# Sources that a program without peers need not link, with libibverbs and librdmacm behind them:
# programs ask for the archive by the names of its parts (flags.mk), which the runtime knows weakly.
VERBS_LIBRARY_SOURCES := $(filter transport/verbs/%,$(filter-out $(VERBS_WORDS), \
                           $(TRANSPORT:%=transport/%.cc))) \
                         $(if $(SANITIZED),,transport/verbs/device/verbs_drivers.cc) \
                         apps/boot/verbs_peers.cc apps/boot/peers_plan.cc apps/boot/verbs_c.cc \
                         apps/perf/perf_verbs_side.cc apps/perf/register_cost.cc
INIT_LIBRARY_SOURCES := $(INIT:%=apps/init/%.cc)
# TLS, with OpenSSL behind it, likewise.
TLS_LIBRARY_SOURCES := $(TLS:%=transport/tls/%.cc) apps/boot/tls_connection.cc
# Ports, with DPDK behind them.
DPDK_LIBRARY_SOURCES := $(DPDK:%=transport/dpdk/%.cc) $(PORTS:%=apps/ports/%.cc)
LIBRARY_SOURCES := $(PLATFORM:%=platform/%.cc) $(PINNED_POOL:%=pinned_pool/%.cc) \
                   $(ALLOC:%=alloc/%.cc) \
                   $(filter-out $(VERBS_LIBRARY_SOURCES),$(TRANSPORT:%=transport/%.cc)) \
                   apps/boot/bedplate_c.cc apps/boot/error_c.cc apps/boot/messages_c.cc \
                   $(BOOT:%=apps/boot/%.cc) $(PERF:%=apps/perf/%.cc) \
                   $(COMMANDS:%=apps/program/%.cc) $(HTTP:%=apps/http/%.cc) \
                   $(CONTROL:%=apps/control/%.cc)
MALLOC_SOURCES := alloc/fork_calls.cc alloc/intercepting_heap.cc alloc/memory_calls.cc \
                  alloc/operator_new.cc
# The pool's heap as a shared object, for the benchmark alone.
BENCH_HEAP_SOURCES := $(PLATFORM:%=platform/%.cc) $(PINNED_POOL:%=pinned_pool/%.cc) \
                      $(patsubst %,alloc/%.cc,$(filter-out confined_mimalloc,$(ALLOC))) \
                      $(MALLOC_SOURCES) scripts/bench/preload_heap.cc
BLOCKD_SOURCES := $(BLOCKD:%=apps/blockd/%.cc)
KVD_SOURCES := $(KVD:%=apps/kvd/%.cc)
TSRELAY_SOURCES := $(TSRELAY:%=apps/tsrelay/%.cc)
PROGRAM_SOURCES := apps/bedplate/main.cc

TEST_SOURCES := tests/main.cc \
                $(sort $(wildcard tests/support/*.cc tests/*/*_test.cc tests/*/*/*_test.cc \
                             tests/*/*/*/*_test.cc))
# EAL leaves threads, beside which ThreadSanitizer lets no process fork.
ifeq ($(MODE),tsan)
  TEST_SOURCES := $(filter-out tests/transport/dpdk/eal/% tests/transport/dpdk/port/%,$(TEST_SOURCES))
  # THREADED=1, which make check has: without the folders whose tests have one thread.
  ONE_THREAD := transport/dpdk/% apps/program/% apps/perf/% apps/http/% apps/kvd/%
  TEST_SOURCES := $(filter-out $(if $(THREADED),$(ONE_THREAD:%=tests/%)),$(TEST_SOURCES))
endif
STRAIN_SOURCES := $(wildcard tests/strain/*.cc)
TRAFFIC_SOURCES := $(wildcard tests/guest/*.cc)
PLACES_SOURCES := $(wildcard tests/places/*.cc)
POWER_SOURCES := $(wildcard tests/power/*.cc)
